import json
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.predictors import Predictor
from crf_tagger_cases import CASES, instances, outputs, tagger
from process_group import in_processes

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.data.indexer import ElmoTokenCharactersIndexer
from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from elmo_plugin.models.crf_tagger import CrfTagger
from elmo_plugin.predictors.sentence_tagger import SentenceTaggerPredictor
from tests.cases import assert_close
from tests.models.batches import tensors

STORED = json.loads(Path(__file__).with_name("crf_tagger.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_equals_the_stored_outputs_of_allennlp_models(case):
    assert_close(outputs(tagger(CrfTagger, CASES[case])), STORED[case])


@pytest.mark.peers
@pytest.mark.parametrize("case", CASES)
def test_equals_allennlp_models_and_loads_its_weights(case):
    tagging = pytest.importorskip("allennlp_models.tagging")
    ours, theirs = (tagger(c, CASES[case]) for c in (CrfTagger, tagging.CrfTagger))
    for parameter in theirs.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    assert_close(outputs(ours), outputs(theirs))
    theirs.load_state_dict(ours.state_dict())


def test_predictions_are_well_formed_if_constrained():
    found = outputs(tagger(CrfTagger, CASES["bioul"]))["tags"]
    reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
    for tags in found:  # raises ValueError for an ill-formed one
        reader.text_to_instance([Token("w")] * len(tags), ner_tags=tags)


def test_padding_and_batching_change_no_prediction():
    model = tagger(CrfTagger, CASES["bioul"])
    together = model(**tensors(model, instances()))
    losses = 0.0
    for row, instance in enumerate(instances()):
        alone = model(**tensors(model, [instance]))
        assert alone["tags"][0] == together["tags"][row]
        losses += alone["loss"].item()
    assert losses == pytest.approx(together["loss"].item(), rel=1e-5)


def test_a_batch_of_one_token_trains():
    torch.manual_seed(0)  # or dropout may leave nothing of a token
    model = tagger(CrfTagger, CASES["ner.jsonnet"]).train()
    output = model(**tensors(model, instances()[1:2]))
    output["loss"].backward()
    assert output["logits"].shape == (1, 1, model.num_tags)
    assert model.tag_projection_layer._module.weight.grad.abs().sum() > 0


def test_learns_its_training_sentences():
    torch.manual_seed(0)
    model = tagger(CrfTagger, CASES["bioul"]).train()
    batch = tensors(model, instances())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    model.get_metrics(reset=True)
    model.eval()(**batch)
    assert model.get_metrics()["f1-measure-overall"] == 1.0


def test_wrong_dimensions():
    embedder = {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}}
    params = {
        "type": "crf_tagger",
        "text_field_embedder": embedder,
        "encoder": {"type": "lstm", "input_size": 5, "hidden_size": 3},
    }
    with pytest.raises(ConfigurationError, match="encoder input dim"):
        Model.from_params(Params(params), vocab=Vocabulary.from_instances(instances()))


@pytest.fixture
def tagger_with_elmo(tmp_path):
    """Builds from config parts, as `allennlp train` does, over a tiny biLM of random weights."""
    torch.manual_seed(3)
    options = ElmoOptions(4, 6, 2, 3, ((1, 4), (2, 3)), 1)
    bilm = BiLm(options)
    for parameter in bilm.parameters():
        torch.nn.init.normal_(parameter)
    save_weights(bilm, tmp_path / "weights.hdf5")

    def build(num_output_representations, input_size, key="tokens", **flags):
        single_id = {"type": "embedding", "embedding_dim": 4}
        params = {
            "type": "crf_tagger",
            "label_encoding": "BIOUL",
            "text_field_embedder": {"token_embedders": {key: single_id}},
            "encoder": {"type": "lstm", "input_size": input_size, "hidden_size": 3},
            "elmo": {
                "options": options_dict(options),
                "pretrained_file": str(tmp_path / "weights.hdf5"),
                "num_output_representations": num_output_representations,
                "dropout": 0.0,
                "state": "reset",
            },
            **flags,
        }
        indexers = {"tokens": SingleIdTokenIndexer(), "elmo": ElmoTokenCharactersIndexer()}
        chosen = instances()
        for instance in chosen:
            instance["tokens"]._token_indexers = indexers
        model = Model.from_params(Params(params), vocab=Vocabulary.from_instances(chosen))
        return model.eval(), tensors(model, chosen)

    return build


@pytest.mark.parametrize(
    ("at_input", "at_output", "input_size", "projected"),
    [(True, False, 4 + 8, 3), (False, True, 4, 3 + 8), (True, True, 4 + 8, 3 + 8)],
    ids=["input", "output", "both"],
)
def test_elmo_stands_where_the_flags_say(
    tagger_with_elmo, at_input, at_output, input_size, projected
):
    flags = {"use_input_elmo": at_input, "use_output_elmo": at_output}
    model, batch = tagger_with_elmo(at_input + at_output, input_size, **flags)
    seen = {}
    model.encoder.register_forward_pre_hook(lambda _, inputs: seen.update(input=inputs[0]))
    layer = model.tag_projection_layer._module
    layer.register_forward_pre_hook(lambda _, inputs: seen.update(output=inputs[0]))
    model(**batch)["loss"].backward()
    mixes = model._elmo(batch["tokens"]["elmo"]["elmo_tokens"])["elmo_representations"]
    assert seen["input"].shape[-1] == input_size
    assert seen["output"].shape[-1] == layer.in_features == projected
    if at_input:
        torch.testing.assert_close(seen["input"][..., 4:], mixes[0])
    if at_output:
        torch.testing.assert_close(seen["output"][:, 3:], mixes[-1].flatten(0, 1))
    weights = [p for name, p in model._elmo.named_parameters() if "scalar_parameters" in name]
    assert len(weights) == 3 * (at_input + at_output)
    assert all(weight.grad is not None and weight.grad != 0 for weight in weights)


def test_elmo_and_flags_must_agree(tagger_with_elmo):
    with pytest.raises(ConfigurationError, match="expected at least one of them true"):
        tagger_with_elmo(1, 4)
    with pytest.raises(ConfigurationError, match="num_output_representations: 2"):
        tagger_with_elmo(2, 12, use_input_elmo=True)
    with pytest.raises(ConfigurationError, match="with ELMo, if at the input"):
        tagger_with_elmo(1, 4, use_input_elmo=True)
    with pytest.raises(ConfigurationError, match="the key 'elmo' in text_field_embedder"):
        tagger_with_elmo(1, 12, key="elmo", use_input_elmo=True)


def metrics_in_one_of_two_processes(rank, size, expected):
    model = tagger(CrfTagger, CASES["ner.jsonnet"])
    model(**tensors(model, instances()[rank::size]))
    assert model.get_metrics() == pytest.approx(expected)


def test_each_of_two_processes_gets_the_metrics_of_all_sentences():
    model = tagger(CrfTagger, CASES["ner.jsonnet"])
    model(**tensors(model, instances()))
    expected = model.get_metrics()
    assert 0 < expected["f1-measure-overall"] < 1
    in_processes(2, metrics_in_one_of_two_processes, expected)


def test_predictor_takes_a_sentence_or_tokens():
    predictor = SentenceTaggerPredictor.__new__(SentenceTaggerPredictor)
    reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
    model = tagger(CrfTagger, CASES["bioul"])

    class Splitter:
        def tokenize(self, text):
            return [Token(word) for word in text.split("|")]

    Predictor.__init__(predictor, model, reader)
    predictor._tokenizer = Splitter()
    by_tokens = predictor.predict_json({"tokens": ["New York", "\U0001f600", "a\x00"]})
    assert by_tokens["words"] == ["New York", "\U0001f600", "a\x00"]
    assert predictor.predict_json({"sentence": "New York|\U0001f600|a\x00"}) == by_tokens
    with pytest.raises(ValueError, match=r"found the keys \['text'\]"):
        predictor.predict_json({"text": "a"})
    with pytest.raises(ValueError, match="tokens: found 'a b'; expected a list"):
        predictor.predict_json({"tokens": "a b"})
    with pytest.raises(ValueError, match="0 tokens"):
        predictor.predict_json({"tokens": []})


def test_dropout_stands_before_and_behind_the_encoder():
    model = tagger(CrfTagger, {"dropout": 0.5}).train()
    given, put_out = [], {}
    model.dropout.register_forward_hook(lambda _, inputs, output: given.append(inputs[0]))
    for name in ("text_field_embedder", "encoder"):
        getattr(model, name).register_forward_hook(
            lambda _, inputs, output, name=name: put_out.setdefault(name, output)
        )
    model(**tensors(model, instances()))
    assert len(given) == 2
    assert given[0] is put_out["text_field_embedder"]
    assert given[1] is put_out["encoder"]
