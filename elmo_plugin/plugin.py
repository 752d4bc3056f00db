"""
What AllenNLP loads (`.allennlp_plugins` names it): imports every class that registers itself.

allennlp-models, where installed, comes first: its registrations do not say `exist_ok`, ours do, so
ours win in either order.
"""

import importlib.util

from allennlp.common.util import import_module_and_submodules

from elmo_plugin import compat

compat.repair()

if importlib.util.find_spec("allennlp_models") is not None:
    import_module_and_submodules("allennlp_models")

# ruff: noqa: E402, F401
# One line per module that registers something.
import elmo_plugin.data.readers.snli
import elmo_plugin.data.readers.sst_tokens
import elmo_plugin.predictors.textual_entailment
