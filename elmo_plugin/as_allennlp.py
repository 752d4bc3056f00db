"""
`import elmo_plugin.as_allennlp`, as the first line, lets a program written for AllenNLP 0.9 run as
it is: `from allennlp.commands.elmo import ElmoEmbedder`, `from allennlp.modules.elmo import Elmo,
batch_to_ids`. `python -m elmo_plugin run PROGRAM` does the same without the line.

Where AllenNLP 2 is installed, only `allennlp.commands.elmo` is added, which it does not have; where
it is not, these few modules stand in for the package, and no other. The program's LSTM state is
carried from call to call as it was; `ELMO_PLUGIN_STATE=primed` gives a sentence the same vectors
each time. Which one is on is said on stderr.
"""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Optional, Sequence

# The environment variable that says where a sentence's LSTM state starts.
STATE = "ELMO_PLUGIN_STATE"
_OLD = "elmo_plugin.bilm.use.old_programs"
_IDS = "elmo_plugin.bilm.model.characters"
# A module's names, and where each is. The last of AllenNLP's that had them all is the version.
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
    """Finds what no one before it has found, so that nothing that is installed is hidden."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: object = None
    ) -> Optional[ModuleSpec]:
        """For the modules that old programs import."""
        if fullname not in MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return ModuleSpec(fullname, self, origin="elmo_plugin", is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module its names."""
        module.__doc__ = f"elmo_plugin in place of {module.__name__}, see elmo_plugin.as_allennlp."
        for name, value in MODULES[module.__name__].items():
            home = value.startswith("elmo_plugin.")
            setattr(module, name, getattr(import_module(value), name) if home else value)


if not any(isinstance(finder, AllenNlpFinder) for finder in sys.meta_path):
    sys.meta_path.append(AllenNlpFinder())
