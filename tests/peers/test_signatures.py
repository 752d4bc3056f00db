"""A config written for AllenNLP or allennlp-models runs here: our arguments are a superset."""

import importlib
import inspect

import pytest
from allennlp.common import Registrable
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

REGISTERED = [
    (TokenIndexer, "elmo_characters", "data.token_indexers.ELMoTokenCharactersIndexer"),
    (TokenEmbedder, "elmo_token_embedder", "modules.token_embedders.ElmoTokenEmbedder"),
    (
        Seq2SeqEncoder,
        "alternating_lstm",
        "modules.seq2seq_encoders.pytorch_seq2seq_wrapper.StackedAlternatingLstmSeq2SeqEncoder",
    ),
    (DatasetReader, "conll2003", "data.dataset_readers.Conll2003DatasetReader"),
    (Predictor, "sentence_tagger", "predictors.SentenceTaggerPredictor"),
    (Model, "crf_tagger", "_models.tagging.CrfTagger"),
    (Model, "srl", "_models.structured_prediction.SemanticRoleLabeler"),
    (DatasetReader, "srl", "_models.structured_prediction.SrlReader"),
    (
        Predictor,
        "semantic_role_labeling",
        "_models.structured_prediction.SemanticRoleLabelerPredictor",
    ),
    (Model, "coref", "_models.coref.CoreferenceResolver"),
    (DatasetReader, "coref", "_models.coref.ConllCorefReader"),
    (Predictor, "coreference_resolution", "_models.coref.CorefPredictor"),
    (
        Metric,
        "conll_coref_scores",
        "_models.coref.metrics.conll_coref_scores.ConllCorefScores",
    ),
    (Metric, "mention_recall", "_models.coref.metrics.mention_recall.MentionRecall"),
    (Metric, "srl_eval", "_models.structured_prediction.metrics.SrlEvalScorer"),
    (Model, "esim", "_models.pair_classification.ESIM"),
    (DatasetReader, "snli", "_models.pair_classification.SnliReader"),
    (Predictor, "textual_entailment", "_models.pair_classification.TextualEntailmentPredictor"),
    (Model, "bcn", "_models.classification.BiattentiveClassificationNetwork"),
    (
        DatasetReader,
        "sst_tokens",
        "_models.classification.StanfordSentimentTreeBankDatasetReader",
    ),
    (DatasetReader, "squad", "_models.rc.SquadReader"),
    (Predictor, "reading_comprehension", "_models.rc.ReadingComprehensionPredictor"),
    (Metric, "squad", "_models.rc.metrics.SquadEmAndF1"),
]


def theirs(path: str) -> type:
    module, name = path.rsplit(".", 1)
    module = f"allennlp{module}" if module.startswith("_models") else f"allennlp.{module}"
    return getattr(importlib.import_module(module), name)


def ours(registry: type[Registrable], name: str) -> type:
    importlib.import_module("elmo_plugin.plugin")
    if name not in registry.list_available():
        pytest.skip(f"nothing is registered under {name}")
    found = registry.by_name(name)
    if not found.__module__.startswith("elmo_plugin."):
        pytest.skip(f"elmo_plugin registers no {name} of its own")
    return found


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


@pytest.mark.parametrize(("registry", "name", "path"), REGISTERED, ids=[r[1] for r in REGISTERED])
def test_constructor_arguments_are_a_superset(registry, name, path):
    assert_superset(ours(registry, name).__init__, theirs(path).__init__)


@pytest.mark.parametrize("name", ["squad1", "squad2"])
def test_the_other_constructors_of_the_squad_reader_are_supersets(name):
    importlib.import_module("elmo_plugin.plugin")
    constructor = DatasetReader.by_name(name)
    assert constructor.__self__.__module__ == "elmo_plugin.data.readers.squad"
    assert_superset(constructor, getattr(theirs("_models.rc.SquadReader"), name))
