"""ELMo is added to configs of many kinds: what the walk and the trials find."""

import json
import shutil
from pathlib import Path
from typing import List, Optional

import pytest
import torch
from allennlp.common import Params
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2SeqEncoder, TextFieldEmbedder
from allennlp.modules.backbones import Backbone
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import get_text_field_mask

import elmo_plugin.plugin
from elmo_plugin.edits import overlay, trial_data
from elmo_plugin.edits.components import get, shown
from elmo_plugin.edits.elmo_edits import AddedElmo

WIDTH = 512
INDEXER = {"type": "elmo_characters"}
EMBEDDER = {"type": "elmo_token_embedder", "options_file": "embedded", "dropout": 0.0}


@Backbone.register("a_backbone_of_words")
class BackboneOfWords(Backbone):
    def __init__(
        self, vocab: Vocabulary, text_field_embedder: TextFieldEmbedder, encoder: Seq2SeqEncoder
    ) -> None:
        super().__init__()
        self.embedder, self.encoder = text_field_embedder, encoder

    def forward(self, tokens: TextFieldTensors):
        mask = get_text_field_mask(tokens)
        encoded = self.encoder(self.embedder(tokens), mask)
        return {"encoded_text": encoded, "encoded_text_mask": mask}


@Model.register("a_model_of_two_embedders")
class TwoEmbedders(Model):
    """The width is a default or in a list, and its layer none of AllenNLP's."""

    def __init__(
        self,
        vocab: Vocabulary,
        words: TextFieldEmbedder,
        others: Optional[TextFieldEmbedder] = None,
        width: int = 7,
        sizes: Optional[List[int]] = None,
        initializer: Optional[InitializerApplicator] = None,
    ) -> None:
        super().__init__(vocab)
        self.words, self.others = words, others
        self.layer = torch.nn.Linear(*(sizes or (width, 2)))
        if initializer is not None:
            initializer(self)

    def forward(self, tokens: TextFieldTensors, label=None, metadata=None):
        logits = self.layer(self.words(tokens) + self.others(tokens)).mean(1)
        return {"loss": torch.nn.functional.cross_entropy(logits, label)}


def embedder(width):
    return {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": width}}}


def classifier(**parts):
    return {
        "dataset_reader": {"type": "text_classification_json"},
        "train_data_path": "texts.jsonl",
        "model": {"type": "basic_classifier", "text_field_embedder": embedder(10), **parts},
    }


def widths(added):
    return {shown(one.path): one.new for one in added.edits if isinstance(one.new, int)}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, repository):
    monkeypatch.chdir(tmp_path)
    lines = ({"text": f"the boat sank {number}", "label": str(number % 2)} for number in range(6))
    Path("texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("training_config", "examples", "elmo_plugin"):
        Path(name).symlink_to(repository / name)
    return tmp_path


BERT = {"type": "pretrained_transformer", "model_name": "bert-base-uncased"}
FEED = {"input_dim": 10, "num_layers": 2, "hidden_dims": [10, 10], "activations": "relu"}
BAG = {"type": "boe", "embedding_dim": 10}
LSTM = {"type": "lstm", "input_size": 10, "hidden_size": 10}
PASS = {"type": "pass_through", "input_dim": 10}
TWO = {"type": "a_model_of_two_embedders", "words": embedder(7), "others": embedder(7)}
WORDS = {"tokens": {"type": "single_id"}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # A bag of embeddings passes its width on, and does not check it.
        (
            classifier(seq2vec_encoder=BAG, feedforward=FEED),
            {"model.seq2vec_encoder.embedding_dim": 522, "model.feedforward.input_dim": 522},
        ),
        # Two keys must change before the model can be built.
        (
            classifier(
                seq2seq_encoder={"type": "compose", "encoders": [PASS, LSTM]}, seq2vec_encoder=BAG
            ),
            {
                "model.seq2seq_encoder.encoders.0.input_dim": 522,
                "model.seq2seq_encoder.encoders.1.input_size": 522,
            },
        ),
        ({**classifier(), "model": TWO}, {"model.width": 519}),
        ({**classifier(), "model": {**TWO, "sizes": [7, 2]}}, {"model.sizes.0": 519}),
        (
            {
                "dataset_reader": {
                    "type": "multitask",
                    "readers": {
                        "a": {"type": "text_classification_json"},
                        "b": {"type": "text_classification_json", "token_indexers": WORDS},
                    },
                },
                "train_data_path": {"a": "texts.jsonl", "b": "texts.jsonl"},
                "model": {
                    "type": "multitask",
                    "backbone": {
                        "type": "a_backbone_of_words",
                        "text_field_embedder": embedder(10),
                        "encoder": LSTM,
                    },
                    "heads": {
                        name: {"type": "classifier", "seq2vec_encoder": BAG} for name in "ab"
                    },
                },
            },
            {"model.backbone.encoder.input_size": 522},
        ),
    ],
    ids=["bag", "compose", "defaults", "list", "multitask"],
)
def test_the_widths_that_follow_are_found(config, expected):
    added = AddedElmo(config, "embedded")
    assert added.problem is None
    assert widths(added) == expected
    assert "gradients are finite" in added.check()
    Path("it.jsonnet").write_text(json.dumps(config))
    overlay.write(Path("it.jsonnet"), Path("out.jsonnet"), added.config, added.edits)
    assert overlay.evaluate("out.jsonnet")[0] == added.config


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ner", {"encoder.input_size": WIDTH}),
        ("esim", {"encoder.input_size": WIDTH}),
        ("squad", {"phrase_layer.input_size": WIDTH}),
        ("semantic_role_labeler", {"encoder.input_size": WIDTH}),
        ("biattentive_classification_network", {"pre_encode_feedforward.input_dim": WIDTH}),
        (
            "coref",
            {
                "context_layer.input_size": WIDTH,
                "mention_feedforward.input_dim": WIDTH,
                "antecedent_feedforward.input_dim": 3 * WIDTH,
            },
        ),
    ],
)
def test_on_our_own_configs(name, expected, folder):
    """They are jsonnet, which is overlaid; the readers' own indexers are kept."""
    source, output = Path(f"training_config/{name}.jsonnet"), folder / "with elmo.jsonnet"
    config, _ = overlay.evaluate(source)
    added = AddedElmo(config, "embedded")
    assert added.problem is None
    grown = {path: new - get(config, tuple(path.split("."))) for path, new in widths(added).items()}
    assert grown == {f"model.{path}": width for path, width in expected.items()}
    overlay.write(source, output, added.config, added.edits)
    assert Params.from_file(output).as_dict(quiet=True) == added.config
    for part in ("dataset_reader", "validation_dataset_reader"):
        if part in config:
            indexers = added.config[part]["token_indexers"]
            assert indexers.pop("elmo") == INDEXER
            assert indexers == config[part].get("token_indexers", WORDS)
    embedders = added.config["model"]["text_field_embedder"]["token_embedders"]
    assert embedders["elmo"] == EMBEDDER
    assert "gradients are finite" in added.check()


def test_other_weights_and_elmo_that_is_there(files):
    """Widths shrink by as much as the new biLM is narrower, and grow again."""
    config, _ = overlay.evaluate("training_config/ner_elmo.jsonnet")
    before = config["model"]["encoder"]["input_size"]
    assert AddedElmo(config, "embedded").edits == []
    other = str(Path(files.options).parent)
    added = AddedElmo(config, other)
    (width,) = widths(added).values()
    assert width < before
    assert "gradients are finite" in added.check()
    assert widths(AddedElmo(added.config, "embedded")) == {"model.encoder.input_size": before}


@pytest.mark.parametrize(
    ("reader", "end"),
    [
        ("text_classification_json", "loss and gradients are finite"),
        ("sst_tokens", "no loss without labels"),  # they are numbers, which are not invented
    ],
)
def test_without_data_a_sentence_is_invented(reader, end):
    config = classifier(seq2vec_encoder={"type": "cnn", "embedding_dim": 10, "num_filters": 4})
    config |= {"dataset_reader": {"type": reader}, "train_data_path": "nowhere.jsonl"}
    added = AddedElmo(config, "embedded")
    assert widths(added) == {"model.seq2vec_encoder.embedding_dim": 522}
    assert "invented" in added.notes[0]
    assert "nowhere.jsonl" in added.notes[0]
    assert f"an invented sentence was run with embedded: {end}" in added.check()


def test_data_that_is_read_slowly_is_no_missing_data(monkeypatch):
    monkeypatch.setattr(trial_data, "MOST_SECONDS", -1.0)  # the first instance comes later
    added = AddedElmo(classifier(seq2vec_encoder=BAG), "embedded")
    assert added.notes == []
    assert "the data's first instances" in added.check()


def test_initializers_keep_off_the_bilm():
    config = classifier(
        seq2vec_encoder=BAG,
        initializer={"regexes": [[".*bias.*", {"type": "constant", "val": 7}]]},
    )
    added = AddedElmo(config, "embedded")
    assert get(added.config, ("model", "initializer", "prevent_regexes")) == ["_elmo_lstm"]
    model = Model.from_params(Params(added.config).pop("model"), vocab=Vocabulary())
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert bool((parameter == 7).all()) == ("_elmo_lstm" not in name), name
    config["model"]["initializer"]["regexes"] = [["classification.*", "normal"]]
    assert "prevent_regexes" not in AddedElmo(config, "embedded").config["model"]["initializer"]


@pytest.mark.parametrize(("regex", "found"), [("^words", True), ("^(?!words|others)", False)])
def test_initializers_are_compared_with_the_models_own_names(regex, found):
    model = {**TWO, "initializer": {"regexes": [[regex, {"type": "normal"}]]}}
    added = AddedElmo({**classifier(), "model": model}, "embedded")
    assert ("prevent_regexes" in added.config["model"]["initializer"]) == found


def test_a_width_that_a_layer_refuses_is_named():
    """522 is no multiple of five heads."""
    encoder = {"type": "pytorch_transformer", "input_dim": 10, "num_layers": 1}
    encoder["num_attention_heads"] = 5
    added = AddedElmo(classifier(seq2seq_encoder=encoder, seq2vec_encoder=BAG), "embedded")
    assert "width 522, expected 10" in added.problem
    assert "model.seq2seq_encoder.input_dim 522: AssertionError: embed_dim must be" in added.problem


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("model", {"type": "from_archive", "archive_file": "model.tar.gz"}, "input_size: 522"),
        (
            "dataset_reader",
            {"type": "text_classification_json", "tokenizer": BERT},
            "tokenizer is of a transformer",
        ),
        ("model", {"type": "no such model"}, "no such model"),
        ("model", {"type": "a_model_of_two_embedders"}, "no token_embedders"),
        ("iterator", {"type": "basic"}, "AllenNLP 0.9"),
        (
            "dataset_reader",
            {"type": "text_classification_json", "manual_distributed_sharding": True},
            "dataset_reader cannot be built: TypeError: .* multiple values",
        ),
    ],
)
def test_what_cannot_have_elmo_is_said(part, value, message):
    config = classifier(seq2seq_encoder=LSTM, seq2vec_encoder=BAG)
    if "archive_file" in value:
        Path("run").mkdir()
        Path("run/config.json").write_text(json.dumps(config))
        shutil.make_archive("model", "gztar", "run")
    with pytest.raises(Exception, match=message):
        AddedElmo({**config, part: value}, "embedded")


@pytest.mark.parametrize("text", ["[1]", "{}", "3"])
def test_what_is_no_config_is_said(text):
    Path("it.json").write_text(text)
    with pytest.raises(ValueError, match=r"it\.json has no model or no dataset_reader"):
        overlay.evaluate("it.json")


LATE = """
local embedding(width) = { type: 'embedding', embedding_dim: width };
{
  random_seed: std.parseInt(std.extVar('SEED_OF_NOBODY')),
  dataset_reader: { type: 'text_classification_json', token_indexers: { tokens: 'single_id' } },
  validation_dataset_reader: $.dataset_reader + { max_sequence_length: 50 },
  train_data_path: std.extVar('DATA_OF_NOBODY') + '/x.jsonl',
  model: {
    type: 'basic_classifier',
    text_field_embedder: { token_embedders: { tokens: embedding(10) } },
    seq2seq_encoder: { type: 'lstm', input_size: 10, hidden_size: 2 * self.input_size },
    seq2vec_encoder: { type: 'boe', embedding_dim: $.model.seq2seq_encoder.hidden_size },
  },
}
"""


def test_values_that_depend_on_edited_ones_stay():
    Path("late.jsonnet").write_text(LATE)
    config, unset = overlay.evaluate("late.jsonnet")
    assert unset == {"DATA_OF_NOBODY": "DATA_OF_NOBODY", "SEED_OF_NOBODY": "1"}
    added = AddedElmo(config, "embedded")
    assert widths(added) == {"model.seq2seq_encoder.input_size": 522}
    overlay.write(Path("late.jsonnet"), Path("out.jsonnet"), added.config, added.edits)
    assert overlay.evaluate("out.jsonnet")[0] == added.config
    assert added.config["model"]["seq2seq_encoder"]["hidden_size"] == 20
    assert elmo_plugin.plugin


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("function(n=1) {", "got function and object"),
        ("{ assert self.model.seq2vec_encoder.embedding_dim == 10 : 'ten',", "ten"),
    ],
)
def test_jsonnet_that_cannot_be_edited_is_said_and_nothing_written(start, reason):
    config = classifier(seq2vec_encoder=BAG)
    Path("it.jsonnet").write_text(start + json.dumps(config)[1:])
    added = AddedElmo(overlay.evaluate("it.jsonnet")[0], "embedded")
    Path("out.jsonnet").write_text("before")
    with pytest.raises(ValueError, match=rf"^it.jsonnet cannot be imported .*{reason}"):
        overlay.write(Path("it.jsonnet"), Path("out.jsonnet"), added.config, added.edits)
    assert Path("out.jsonnet").read_text() == "before"


@pytest.mark.parametrize("end", ["}", ",}  // a comment"])
def test_json_is_written_whole(end):
    config = classifier(seq2vec_encoder=BAG)
    Path("it.json").write_text(json.dumps(config)[:-1] + end)
    added = AddedElmo(overlay.evaluate("it.json")[0], "embedded")
    overlay.write(Path("it.json"), Path("out.json"), added.config, added.edits)
    assert json.loads(Path("out.json").read_text()) == added.config
