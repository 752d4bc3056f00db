"""ELMoForManyLangs in AllenNLP: indexer, embedder, archives, NER, and the commands."""

import json
import shutil

import h5py
import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Token, Vocabulary
from allennlp.models import load_archive
from allennlp.predictors import Predictor

import elmo_plugin.plugin
from elmo_plugin import ElmoEmbedder, ElmoTokenCharactersIndexer, ElmoTokenEmbedder
from elmo_plugin.__main__ import main
from tests.many_langs_model import SENTENCES, write_embedded, write_many_langs
from tests.models.tasks import embedder, lstm, ner
from tests.tagging_task import tagger_config, with_elmo, write_task

INDEXER = {"type": "elmo_characters", "code_points": True, "max_characters_per_token": 12}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_many_langs(tmp_path / "xx.model")
    return tmp_path


def test_indexer_and_embedder(folder):
    assert elmo_plugin.plugin
    indexer = ElmoTokenCharactersIndexer(max_characters_per_token=12, code_points=True)
    embedder = ElmoTokenEmbedder("xx.model/", dropout=0.0, state="reset")
    for sentence in SENTENCES:
        indexed = indexer.tokens_to_indices([Token(one) for one in sentence], Vocabulary())
        ids = indexer.as_padded_tensor_dict(indexed, {"elmo_tokens": len(sentence) + 2})
        assert torch.equal(ids["elmo_tokens"][:-2], embedder._elmo.batch_to_ids([sentence])[0])
        assert not ids["elmo_tokens"][-2:].any()
        found = embedder(ids["elmo_tokens"].unsqueeze(0))[0, : len(sentence)]
        layers = ElmoEmbedder("xx.model", state="reset").embed_sentence(sentence)
        expected = torch.from_numpy(layers).mean(dim=0)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_wrong_configs(folder):
    with pytest.raises(ConfigurationError, match="is given with code_points, expected it with byt"):
        ElmoTokenCharactersIndexer(tokens_to_add={"x": 3}, code_points=True)
    with pytest.raises(ConfigurationError, match=r"gone and the names|there is no file .*gone"):
        ElmoTokenEmbedder("gone", "gone")
    (folder / "xx.model" / "encoder.pkl").unlink()
    with pytest.raises(ConfigurationError, match=r"xx.model has no file encoder.pkl, expected a"):
        ElmoTokenEmbedder("xx.model")


def test_an_archive_stands_alone(folder):
    """Without the model's folder, dictionaries and all."""
    write_task(folder)
    config = with_elmo(tagger_config(), 12, options_file="xx.model/", state="primed")
    config["dataset_reader"]["token_indexers"]["elmo"] = dict(INDEXER)
    trained = train_model(Params(config), folder / "out")
    before = evaluate_from_archive("out/model.tar.gz", "dev.txt", cuda_device=-1)
    shutil.rmtree(folder / "xx.model")
    after = evaluate_from_archive("out/model.tar.gz", "dev.txt", cuda_device=-1)
    assert after == pytest.approx(before, abs=1e-6)
    archive = load_archive("out/model.tar.gz")
    layer = archive.model.text_field_embedder.token_embedder_elmo._elmo._elmo_lstm.char_cnn
    assert layer.lexicon.words["cat"] > 0
    for name, value in trained.state_dict().items():
        assert torch.equal(archive.model.state_dict()[name], value), name
    predictor = Predictor.from_archive(archive, "sentence_tagger")
    assert len(predictor.predict_json({"sentence": "quickly 中文"})["tags"]) == 2


def test_the_other_indexer_is_named_in_the_error(folder):
    write_task(folder)
    config = with_elmo(tagger_config(), 12, options_file="xx.model/")
    config["dataset_reader"]["token_indexers"]["elmo"]["max_characters_per_token"] = 12
    with pytest.raises(ValueError, match=r'in a config the indexer .*"code_points": true'):
        train_model(Params(config), folder / "out")


def test_commands(folder, capsys):
    (folder / "text.txt").write_text("the cat sat\n中文 .\n", "utf-8")
    (folder / "words.txt").write_text("the\ncat\n", "utf-8")
    main(["elmo", "text.txt", "out.hdf5", "--all", "--options-file", "xx.model", "--max-tokens=4"])
    embedder = ElmoEmbedder("xx.model")
    with h5py.File("out.hdf5") as file:
        for key, sentence in (("0", ["the", "cat", "sat"]), ("1", ["中文", "."])):
            torch.testing.assert_close(
                torch.from_numpy(file[key][...]),
                torch.from_numpy(embedder.embed_sentence(sentence)),
                atol=1e-6,
                rtol=1e-5,
            )
    main(["token-vectors", "words.txt", "vectors.txt", "--options-file", "xx.model",
          "--sentence-boundaries"])  # fmt: skip
    lines = (folder / "vectors.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["the", "<bos>", "<eos>", "cat"]
    with pytest.raises(SystemExit, match="1"):
        main(["elmo", "text.txt", "other.hdf5", "--all", "--options-file", "."])
    assert "error: . has out.hdf5, text.txt," in capsys.readouterr().err


@pytest.mark.slow
def test_ner_trains_on_one(folder, repository):
    """The sample task, less its word vectors and character CNN: only ELMo tells words apart."""
    shutil.rmtree(folder / "xx.model")
    write_embedded(folder / "xx.model")
    elmo_dim = ElmoEmbedder("xx.model").embed_sentence(["one"]).shape[-1]
    data = repository / "examples" / "ner"
    elmo = {"options_file": "xx.model", "state": "primed", "cache": "memory", "dropout": 0.0}
    config = {
        "dataset_reader": {
            "type": "conll2003",
            "tag_label": "ner",
            "coding_scheme": "BIOUL",
            "token_indexers": {"elmo": {**INDEXER, "max_characters_per_token": 50}},
        },
        "train_data_path": str(data / "train.txt"),
        "validation_data_path": str(data / "dev.txt"),
        "model": ner(
            label_encoding="BIOUL",
            text_field_embedder=embedder(words=False, elmo=elmo),
            encoder={**lstm(elmo_dim), "hidden_size": 32},
        ),
        "data_loader": {"batch_size": 16},
        "trainer": {"optimizer": {"type": "adam", "lr": 0.003}, "num_epochs": 5, "cuda_device": -1},
    }
    train_model(Params(config), folder / "out")
    losses = [
        json.loads((folder / "out" / f"metrics_epoch_{epoch}.json").read_text())["training_loss"]
        for epoch in (0, 4)
    ]
    assert losses[1] < 0.3 * losses[0]
    shutil.rmtree(folder / "xx.model")
    found = evaluate_from_archive("out/model.tar.gz", str(data / "test.txt"), cuda_device=-1)
    assert found["f1-measure-overall"] > 0.3
