"""
Public names, and classes that configs reach, document their constructors and `forward` in
AllenNLP's dialect: a `# Parameters` section with one ``name : `type` `` line for each argument.
Other classes may leave out what names and types say, but name no argument that is not there.
"""

import importlib
import inspect
import pkgutil
import re
import sys

import pytest
from allennlp.common import Registrable

import elmo_plugin

SECTION = re.compile(r"^# Parameters\n(.*?)(?=^# |\Z)", re.MULTILINE | re.DOTALL)
PARAMETER = re.compile(r"^(\w+(?:, \w+)*) : `", re.MULTILINE)  # `a, b : ` says two at once


def documented(docstring):
    section = SECTION.search(inspect.cleandoc(docstring or ""))
    return set(", ".join(PARAMETER.findall(section[1])).split(", ")) if section else set()


def difference(function, docstring):
    """What is taken and not said, or said and not taken."""
    # What a constructor wraps is documented where it stands.
    signature = inspect.signature(function, follow_wrapped=False)
    parameters = list(signature.parameters.values())[1:]  # without self
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken, said = {p.name for p in parameters if p.kind not in variadic}, documented(docstring)
    # `**kwargs` may be documented by the names that it takes.
    return taken - said if variadic[1] in {p.kind for p in parameters} else taken ^ said


def must_say(cls):
    is_public = cls is getattr(elmo_plugin, cls.__name__, None)
    return is_public or issubclass(cls, Registrable)


def problems(cls, always=True):
    found = {}
    if "__init__" in vars(cls):
        found["__init__"] = difference(cls.__init__, cls.__doc__)
    if inspect.isfunction(vars(cls).get("forward")):
        found["forward"] = difference(cls.forward, cls.forward.__doc__)
        if "# Returns" not in (cls.forward.__doc__ or ""):
            found["forward"].add("# Returns")
    if not always:
        found = {
            name: names & documented((cls if name == "__init__" else cls.forward).__doc__)
            for name, names in found.items()
        }
    return {name: names for name, names in found.items() if names}


MODULES = [
    info.name
    for info in pkgutil.walk_packages(elmo_plugin.__path__, "elmo_plugin.")
    if not info.name.endswith("__main__")
]


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_name_the_arguments(module, monkeypatch):
    if module == "elmo_plugin.as_allennlp":  # it would replace AllenNLP's classes in other tests
        monkeypatch.delitem(sys.modules, "allennlp.modules.elmo", raising=False)
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    if module == "elmo_plugin.sentence_transformers":
        pytest.importorskip(
            "sentence_transformers", reason="sentence-transformers is not installed"
        )
    classes = {
        name: cls
        for name, cls in inspect.getmembers(importlib.import_module(module), inspect.isclass)
        if cls.__module__ == module and not name.startswith("_")
    }
    found = {name: problems(cls, must_say(cls)) for name, cls in classes.items()}
    assert {name: names for name, names in found.items() if names} == {}


def test_a_missing_and_a_stale_parameter_are_seen():
    class Mixer:
        """
        Mixes.

        # Parameters

        size : `int`
            How many.
        gone : `int`, optional (default = `1`)
            No longer there.

        # Raises

        ValueError : `never`
        """

        def __init__(self, size, depth, *, flag=False):
            pass

        def forward(self, layers):
            """Undocumented."""

    assert problems(Mixer) == {
        "__init__": {"gone", "depth", "flag"},
        "forward": {"layers", "# Returns"},
    }
