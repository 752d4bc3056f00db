"""`add-elmo` on the public configs of AllenNLP and allennlp-models."""

import itertools

import pytest
from allennlp.common import Params

pytest.importorskip("allennlp_models", reason="run by make peers")

from elmo_plugin.edits import overlay
from elmo_plugin.edits.components import get, shown
from elmo_plugin.edits.elmo_edits import AddedElmo
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.peers
CONFIGS = REPOSITORY.parent / "shared" / "configs"
FOUND = sorted(
    path.relative_to(CONFIGS)
    for path in itertools.chain(
        CONFIGS.rglob("*experiment*.json*"), CONFIGS.rglob("training_config/**/*.json*")
    )
)
# What grows, by multiples of ELMo's width; `{}` if only the two edits of ELMo are needed.
GROWS = {
    "basic_stanford_sentiment_treebank": {"seq2vec_encoder.input_size": 1},
    "bcn": {"pre_encode_feedforward.input_dim": 1},
    "bidaf": {"phrase_layer.input_size": 1},
    "bimpm": {"encoder1.input_size": 1, "matcher_word.hidden_dim": 1},
    "biaffine_parser": {"encoder.input_size": 1},
    "composed_seq2seq": {"encoder.input_size": 1},
    "constituency_parser": {"encoder.input_size": 1},
    "copynet_seq2seq": {"encoder.input_size": 1},
    "coref": {
        "context_layer.input_size": 1,
        "mention_feedforward.input_dim": 1,
        "antecedent_feedforward.input_dim": 3,
    },
    "crf_tagger": {"encoder.input_size": 1},
    "decomposable_attention": {
        "attend_feedforward.input_dim": 1,
        "compare_feedforward.input_dim": 2,
    },
    "dialog_qa": {"phrase_layer.input_size": 1},
    "esim": {"encoder.input_size": 1},
    "graph_parser": {"encoder.input_size": 1},
    "language_model": {"contextualizer.input_dim": 1},
    "naqanet": {},
    "qanet": {},
    "simple_tagger": {"encoder.input_size": 1},
    "srl": {"encoder.input_size": 1},
}


@pytest.mark.parametrize("path", FOUND, ids=str)
def test_the_edits_are_right(path, tmp_path, monkeypatch):
    monkeypatch.chdir(CONFIGS / path.parts[0])
    source = CONFIGS / path
    if "common.jsonnet" in source.read_text():
        pytest.skip("it imports common.jsonnet, which is not beside it")
    config, unset = overlay.evaluate(source)
    added = AddedElmo(config, "embedded")
    assert added.problem is None
    kind = get(config, ("model", "type"))
    grown = {}
    for edit in added.edits:
        if isinstance(edit.new, int):
            grown[shown(edit.path).removeprefix("model.")] = edit.new - edit.old
    expected = GROWS[kind if kind != "basic_classifier" else path.stem]
    steps = {abs(grown[key]) / number for key, number in expected.items()}
    assert grown.keys() == expected.keys()
    assert steps <= {512, 480}  # 480: from 32
    output = tmp_path / f"out{source.suffix}"
    overlay.write(source, output, added.config, added.edits)
    assert Params.from_file(output, ext_vars=unset).as_dict() == added.config
    checked = added.check()
    if "test_fixtures" in path.parts:
        assert "the data's first instances" in checked
        assert "gradients are finite" in checked


def test_a_treebank_in_any_folder_is_read(tmp_path):
    """NLTK 3.10 refuses files outside its own data folders."""
    from allennlp.data import DatasetReader

    (tmp_path / "trees").write_text("(S (NP (DT The) (NN boat)) (VP (VBD sank)))\n")
    reader = DatasetReader.from_params(Params({"type": "ptb_trees"}))
    assert len(list(reader.read(str(tmp_path / "trees")))) == 1
