"""
Where allennlp-models is installed (`make peers`), the plugin is loaded before any test module: it
imports allennlp-models first, whose registrations do not allow a second one of the same name.
"""

import importlib.util

if importlib.util.find_spec("allennlp_models") is not None:
    importlib.import_module("elmo_plugin.plugin")
