"""
Stand-in modules for programs that import ELMo from AllenNLP 0.9, such as `from
allennlp.commands.elmo import ElmoEmbedder` and `from allennlp.modules.elmo import Elmo`.

`elmo-plugin run PROGRAM` runs such a program unchanged. So does Python, if the first line of the
program is `import elmo_plugin.as_allennlp`. If AllenNLP 2 is installed, `allennlp.commands.elmo` is
added, and the names in `MODULES` replace those of its other modules. Otherwise the modules in
`MODULES` replace AllenNLP.

The LSTM state is carried from call to call, as in AllenNLP 0.9. With the environment variable
`ELMO_PLUGIN_STATE=primed`, a sentence always has the same vectors. A line on stderr says which
state is used. `ELMO_PLUGIN_OPTIONS_FILE=embedded` loads that biLM in place of the program's files.
"""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Optional, Sequence

# Environment variable that selects a sentence's initial LSTM state: carry, primed or reset.
STATE = "ELMO_PLUGIN_STATE"
# Environment variable with the biLM to load in place of what a program names.
OPTIONS_FILE = "ELMO_PLUGIN_OPTIONS_FILE"
_OLD = "elmo_plugin.bilm.use.old_programs"
_IDS = "elmo_plugin.bilm.model.characters"
# Maps each stand-in module to its names, and each name to the module that defines it (`__version__`
# to its value). AllenNLP 0.9.0 is the last version that has all of these names.
MODULES = {
    "allennlp": {"__version__": "0.9.0"},
    "allennlp.commands": {},
    "allennlp.commands.elmo": {
        "ElmoEmbedder": _OLD,
        "DEFAULT_OPTIONS_FILE": _OLD,
        "DEFAULT_WEIGHT_FILE": _OLD,
        "DEFAULT_BATCH_SIZE": _OLD,
    },
    "allennlp.modules": {"Elmo": _OLD},
    "allennlp.modules.elmo": {"Elmo": _OLD, "_ElmoBiLm": _OLD, "batch_to_ids": _IDS},
}


class AllenNlpFinder(MetaPathFinder, Loader):
    """Import hook for the stand-in modules. It comes last: installed modules have precedence."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: object = None
    ) -> Optional[ModuleSpec]:
        """Return a module spec for a stand-in module, `None` for any other name."""
        if fullname not in MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return ModuleSpec(fullname, self, origin="elmo_plugin", is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Set the attributes of a stand-in module."""
        module.__doc__ = f"elmo_plugin in place of {module.__name__}, see elmo_plugin.as_allennlp."
        _set_names(module)


def _set_names(module: ModuleType) -> None:
    for name, value in MODULES[module.__name__].items():
        home = value.startswith("elmo_plugin.")
        setattr(module, name, getattr(import_module(value), name) if home else value)


def replace_installed(_: ModuleType) -> None:
    """
    Put ELMo's names into AllenNLP 2's `allennlp.modules`, which has been imported. What AllenNLP
    itself has imported from there stays AllenNLP's.
    """
    import_module("elmo_plugin.modules.elmo")  # makes our class one that AllenNLP builds
    for name in ("allennlp.modules.elmo", "allennlp.modules"):
        _set_names(sys.modules[name])


if not any(isinstance(finder, AllenNlpFinder) for finder in sys.meta_path):
    sys.meta_path.append(AllenNlpFinder())
if hasattr(sys.modules.get("allennlp.modules.elmo"), "__file__"):
    replace_installed(sys.modules["allennlp.modules"])
