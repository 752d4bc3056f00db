"""
What AllenNLP loads (`.allennlp_plugins` names it): imports every class that registers itself.

allennlp-models, where installed, comes first: its registrations do not say `exist_ok`, ours do, so
ours win in either order.
"""
# ruff: noqa: E402, F401, I001

import importlib.util

from allennlp.common.util import import_module_and_submodules
from allennlp.training import gradient_descent_trainer

from elmo_plugin import compat

compat.repair()

if importlib.util.find_spec("allennlp_models") is not None:
    import_module_and_submodules("allennlp_models")

from elmo_plugin.training.carried_state import CarriedState
from elmo_plugin.training.interrupt import Interrupt
from elmo_plugin.training.random_state import RandomState
from elmo_plugin.training.training_figures import TrainingFigures

# Active in every run, without a key in its config. Checkpoints hold their states in this order: new
# ones go to the end.
gradient_descent_trainer.DEFAULT_CALLBACKS += (  # type: ignore[assignment]
    Interrupt,
    RandomState,
    CarriedState,
    TrainingFigures,
)

# One line per module that registers something.
import elmo_plugin.training.checkpointer
import elmo_plugin.data.readers.snli
import elmo_plugin.data.readers.sst_tokens
import elmo_plugin.predictors.textual_entailment
import elmo_plugin.data.readers.conll2003
import elmo_plugin.metrics.conlleval
import elmo_plugin.data.indexer
import elmo_plugin.modules.token_embedder
import elmo_plugin.modules.alternating_lstm
import elmo_plugin.models.crf_tagger
import elmo_plugin.modules.input_variational_dropout
import elmo_plugin.predictors.sentence_tagger
import elmo_plugin.commands.subcommands
import elmo_plugin.models.bcn
import elmo_plugin.models.esim
import elmo_plugin.data.bilm_vocabulary
import elmo_plugin.data.readers.bilm_text
import elmo_plugin.data.token_streams
import elmo_plugin.training.bilm_language_model
import elmo_plugin.training.bilm_trainer
import elmo_plugin.metrics.srl_eval
import elmo_plugin.data.readers.srl
import elmo_plugin.models.srl
import elmo_plugin.predictors.srl
import elmo_plugin.metrics.conll_coref
import elmo_plugin.metrics.mention_recall
import elmo_plugin.data.readers.coref
import elmo_plugin.models.coref
import elmo_plugin.predictors.coref
import elmo_plugin.training.staircase_decay
import elmo_plugin.modules.coupled_lstm
import elmo_plugin.modules.unit_length_embedding
import elmo_plugin.data.document_qa_tokenizer
import elmo_plugin.data.truncated_characters
import elmo_plugin.data.readers.squad
import elmo_plugin.data.readers.sampled
import elmo_plugin.metrics.squad
import elmo_plugin.modules.input_dropout
import elmo_plugin.modules.truncated_normal
import elmo_plugin.modules.packed_gru
import elmo_plugin.models.bidaf_self_attention
import elmo_plugin.predictors.reading_comprehension
