"""
What modules may use. The order of the package's parts, which import one another to the left only,
stands in docs/architecture.md (tests/docs/test_architecture_page.py).
"""

import ast
import re
import sys
from pathlib import Path

import elmo_plugin
from tests.fresh_process import python, run

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "elmo_plugin"
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")
}
# tqdm: the progress bar of pretraining; pure Python, needs nothing.
BILM_MAY_IMPORT = {"torch", "numpy", "h5py", "tqdm", "filelock", *sys.stdlib_module_names}
# The model knows the kernels by this door alone.
DOOR = "elmo_plugin.bilm.kernels.backend."
# Not bfloat16: the size of layer norm's guard against zero depends on the type, as in AllenNLP.
SPEED = ("is_cuda", "device.type", "mkldnn", "onednn", "fbgemm", "triton", "int8")


def found_in(folder, check):
    """What a check finds in the sources of a folder of the package, by file."""
    found = {path: check(text) for path, text in SOURCES.items() if path.startswith(folder)}
    assert found
    return {path: what for path, what in found.items() if what}


def imports(source):
    """Every module that the source imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            # `from package import module` names a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class WithoutOptionalImports(ast.NodeTransformer):
    """The source less what stands in `try: import ... except ImportError:`."""

    def visit_Try(self, node):
        handled = {ast.unparse(h.type) for h in node.handlers if h.type is not None}
        if handled & {"ImportError", "ModuleNotFoundError"}:
            node.body = [ast.Pass()]
        return self.generic_visit(node)


def foreign_to_bilm(source):
    required = ast.unparse(WithoutOptionalImports().visit(ast.parse(source)))
    return [
        name
        for name in imports(required)
        if not name.startswith("elmo_plugin.bilm") and name.split(".")[0] not in BILM_MAY_IMPORT
    ]


def test_bilm_imports_torch_numpy_and_h5py_only():
    assert found_in("bilm/", foreign_to_bilm) == {}
    for foreign in (
        "def f():\n    from allennlp.common import Params",
        "from elmo_plugin import compat",
        "import spacy",
        "try:\n    import spacy\nexcept ValueError:\n    pass",
    ):
        assert foreign_to_bilm(foreign)


def test_models_do_not_import_training():
    def pretraining(source):
        return [name for name in imports(source) if name.startswith("elmo_plugin.bilm.pretraining")]

    assert found_in("models/", pretraining) == {}
    assert pretraining("from elmo_plugin.bilm import pretraining")


def test_the_model_knows_the_kernels_by_one_door():
    def others(source):
        names = [name for name in imports(source) if name.startswith("elmo_plugin.bilm.kernels")]
        return [name for name in names if not name.startswith(DOOR)]

    assert found_in("bilm/model/", others) == {}
    assert others("from elmo_plugin.bilm.kernels.fast import lstm_layer")
    assert others("import elmo_plugin.bilm.kernels.quantized")


class WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node):
        return ast.Pass() if isinstance(node.value, ast.Constant) else node


def test_the_model_does_not_ask_for_devices_or_precision():
    """Docstrings may say what a `dtype` is."""

    def asked(source):
        code = ast.unparse(WithoutDocstrings().visit(ast.parse(source)))
        return [word for word in SPEED if word in code]

    assert found_in("bilm/model/", asked) == {}
    assert asked("if x.is_cuda:\n    pass") == ["is_cuda"]


# What PyTorch and AllenNLP keep private and we have to reach, or the standard library offers so.
NOT_OURS = {"_replace", "_fields", "_asdict", "_make", "_version", "_field_defaults", "_exit"}


def private_names(source):
    """Private attributes and functions that a module makes."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    # `_` is what nobody reads, and spaCy's `doc._`.
    return {name for name in names if re.match("_[^_]", name)}


def reaches_into(source, private):
    """Private names of other modules that a module uses on something else than itself."""
    own, found = private_names(source), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "ctx")
            of_super = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
            if not of_self and not of_super and node.attr in private - own - NOT_OURS:
                found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("elmo_plugin"):
            found |= {one.name for one in node.names if re.match("_[^_]", one.name)}
    return found


def test_no_module_reaches_into_another_ones_private_names():
    private = {name for source in SOURCES.values() for name in private_names(source)}
    found = found_in("", lambda source: reaches_into(source, private))
    # AllenNLP's FeedForward, which tells no other way.
    assert found == {"modules/coref/spans.py": {"_dropout"}}
    for source in (
        "def f(bilm):\n    return bilm._carried",
        "from elmo_plugin.bilm.model.bilm import _bounded",
        "other._carried = None",
    ):
        assert reaches_into(source, {"_carried"})


WITHOUT_ALLENNLP = """
import importlib, pkgutil, sys

hidden = "allennlp", "allennlp_models", "spacy", "transformers", "ray", "pyarrow"
sys.modules.update(dict.fromkeys(hidden))  # Python takes a module for missing if it is `None`
import elmo_plugin
assert "torch" not in sys.modules, "import elmo_plugin is not quick"
import elmo_plugin.bilm
for module in pkgutil.walk_packages(elmo_plugin.bilm.__path__, "elmo_plugin.bilm."):
    importlib.import_module(module.name)
    print(module.name)
for name, home in elmo_plugin._HOMES.items():
    if home.startswith("elmo_plugin.bilm"):
        getattr(elmo_plugin, name)
"""


def test_bilm_runs_where_allennlp_is_absent():
    child = python("-c", WITHOUT_ALLENNLP, folder=ROOT)
    assert "elmo_plugin.bilm.files.weights" in child.stdout.split()


def test_the_public_names_are_those_that_editors_see():
    init = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    (typed,) = (
        node
        for node in init.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.asname: (node.module, alias.name)
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: (home, name) for name, home in elmo_plugin._HOMES.items()}
    assert set(elmo_plugin.__all__) == {"__version__", *seen} == set(dir(elmo_plugin))
    assert (PACKAGE / "py.typed").exists()


def test_the_plugin_imports_every_module_that_registers_something():
    child = run("import sys, elmo_plugin.plugin; print(*sys.modules)")
    reached = set(child.stdout.split())
    registering = found_in(
        "", lambda source: re.search(r"^ *@\w+\.register\(", source, re.MULTILINE)
    )
    assert registering
    names = {path.removesuffix(".py").removesuffix("/__init__") for path in registering}
    assert {f"elmo_plugin.{name.replace('/', '.')}" for name in names} - reached == set()
