"""
Start-up code for child processes of a program that `elmo-plugin run` runs, such as the workers of
a `spawn` pool. They import the program again, so they need the stand-in modules of
`elmo_plugin.as_allennlp`. At start, Python imports the module `sitecustomize` if there is one.
"""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

if __name__ == "sitecustomize":  # imported by Python at start, not as a module of this package
    # This file hides the environment's own `sitecustomize`, so run that one first.
    folder = Path(__file__).parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])
    try:
        import_module("elmo_plugin.as_allennlp")
    except ModuleNotFoundError as error:
        # A child process may run another Python, in which this package is not installed.
        if error.name != "elmo_plugin":
            raise
