"""
Plugin that AllenNLP loads. It patches AllenNLP and imports every module that may register a class.

If allennlp-models is installed, it is imported first, because it cannot register a name that is
already registered. This package's classes can replace registered ones.
"""

import importlib.util
import pkgutil
from importlib import import_module

from allennlp.common.util import import_module_and_submodules

from elmo_plugin import compat
from elmo_plugin.bilm.kernels.machine import let_waiting_threads_sleep

compat.repair()
let_waiting_threads_sleep()

if importlib.util.find_spec("allennlp_models") is not None:
    import_module_and_submodules("allennlp_models")

for folder in ("data", "metrics", "models", "modules", "predictors", "training"):
    package = import_module(f"elmo_plugin.{folder}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
import_module("elmo_plugin.commands.subcommands")
