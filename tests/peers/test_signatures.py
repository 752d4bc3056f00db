"""A config written for AllenNLP or allennlp-models runs here: our arguments are a superset."""

import importlib
import inspect

import pytest
from allennlp.data import DatasetReader, TokenIndexer
from allennlp.models import Model
from allennlp.modules import Seq2SeqEncoder, TokenEmbedder
from allennlp.nn import InitializerApplicator
from allennlp.predictors import Predictor
from allennlp.training.metrics import Metric

from elmo_plugin.bilm.files.names import NAMED_BILMS

pytest.importorskip(
    "allennlp_models", reason="allennlp-models is not installed; `make peers` installs it apart"
)
pytestmark = pytest.mark.peers

# Where theirs are: in AllenNLP, or in allennlp_models where the path begins with `_`.
REGISTERED = {
    TokenIndexer: {"elmo_characters": ".data.token_indexers.ELMoTokenCharactersIndexer"},
    TokenEmbedder: {"elmo_token_embedder": ".modules.token_embedders.ElmoTokenEmbedder"},
    Seq2SeqEncoder: {
        "alternating_lstm": ".modules.seq2seq_encoders.pytorch_seq2seq_wrapper."
        "StackedAlternatingLstmSeq2SeqEncoder"
    },
    DatasetReader: {
        "conll2003": ".data.dataset_readers.Conll2003DatasetReader",
        "srl": "_models.structured_prediction.SrlReader",
        "coref": "_models.coref.ConllCorefReader",
        "snli": "_models.pair_classification.SnliReader",
        "sst_tokens": "_models.classification.StanfordSentimentTreeBankDatasetReader",
        "squad": "_models.rc.SquadReader",
    },
    Model: {
        "crf_tagger": "_models.tagging.CrfTagger",
        "srl": "_models.structured_prediction.SemanticRoleLabeler",
        "coref": "_models.coref.CoreferenceResolver",
        "esim": "_models.pair_classification.ESIM",
        "bcn": "_models.classification.BiattentiveClassificationNetwork",
    },
    Predictor: {
        "sentence_tagger": ".predictors.SentenceTaggerPredictor",
        "semantic_role_labeling": "_models.structured_prediction.SemanticRoleLabelerPredictor",
        "coreference_resolution": "_models.coref.CorefPredictor",
        "textual_entailment": "_models.pair_classification.TextualEntailmentPredictor",
        "reading_comprehension": "_models.rc.ReadingComprehensionPredictor",
    },
    Metric: {
        "conll_coref_scores": "_models.coref.metrics.conll_coref_scores.ConllCorefScores",
        "mention_recall": "_models.coref.metrics.mention_recall.MentionRecall",
        "srl_eval": "_models.structured_prediction.metrics.SrlEvalScorer",
        "squad": "_models.rc.metrics.SquadEmAndF1",
    },
}
CASES = [(one, name, path) for one, paths in REGISTERED.items() for name, path in paths.items()]


def theirs(path: str) -> type:
    module, name = f"allennlp{path}".rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def assert_superset(ours, theirs) -> None:
    expected = inspect.signature(theirs).parameters
    found = inspect.signature(ours).parameters
    for name, parameter in expected.items():
        assert name in found, f"the argument {name} is missing"
        assert found[name].kind == parameter.kind, name
        default = found[name].default
        if isinstance(parameter.default, InitializerApplicator):
            assert isinstance(default, InitializerApplicator), name
        elif parameter.default in NAMED_BILMS["original"]:
            assert default is None, name  # None: the released Original biLM
        elif name == "srl_eval_path":  # theirs is where the package lies; both have one
            assert default is not None, name
        else:
            assert default == parameter.default, f"{name}: {default} != {parameter.default}"
    order = [name for name in found if name in expected]
    assert order == list(expected), "calls by position would differ"


@pytest.mark.parametrize(("registry", "name", "path"), CASES, ids=[name for _, name, _ in CASES])
def test_constructor_arguments_are_a_superset(registry, name, path):
    ours = registry.by_name(name)
    assert ours.__module__.startswith("elmo_plugin.")
    assert_superset(ours.__init__, theirs(path).__init__)


@pytest.mark.parametrize("name", ["squad1", "squad2"])
def test_the_other_constructors_of_the_squad_reader_are_supersets(name):
    constructor = DatasetReader.by_name(name)
    assert constructor.__self__.__module__ == "elmo_plugin.data.readers.squad"
    assert_superset(constructor, getattr(theirs("_models.rc.SquadReader"), name))
