"""A run that begins with the model of another archive makes an archive that stands alone."""

import json
import tarfile
from pathlib import Path

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor

from elmo_plugin.modules import archived_bilm as from_archive
from tests.tagging_task import with_elmo
from tests.tiny_bilm import write


@pytest.fixture
def task(config, tmp_path):
    """A tagger with ELMo, whose biLM is named by files."""
    (tmp_path / "bilm").mkdir()
    files = write(tmp_path / "bilm")
    config["trainer"] |= {"num_epochs": 1, "callbacks": []}
    named = {"options_file": str(files.options), "weight_file": str(files.weights)}
    return with_elmo(config, 12, **named), files


def begun_with(config, archive, folder, words=()):
    """The config of a run that goes on with an archived model, on data with more words."""
    text = (folder / "train").read_text() + "".join(f"{word}###N\n" for word in words)
    (folder / "more").write_text(text)
    return {
        **config,
        "model": {"type": "from_archive", "archive_file": str(archive)},
        "train_data_path": str(folder / "more"),
    }


def packed_again(archive, path):
    """Write an archive with the names that `tar czf model.tar.gz .` gives: `./config.json`."""
    with tarfile.open(archive) as old, tarfile.open(path, "w:gz") as new:
        for member in old.getmembers():
            content = old.extractfile(member)
            member.name = f"./{member.name}"
            new.addfile(member, content)
    return path


def test_an_archive_needs_none_of_its_beginnings(task, tmp_path):
    """Twice: the second run goes on with a model that went on itself. All files are moved away."""
    config, files = task
    train_model(Params(config).duplicate(), str(tmp_path / "parent"))
    parent = packed_again(tmp_path / "parent" / "model.tar.gz", tmp_path / "packed.tar.gz")
    one = begun_with(config, parent, tmp_path, ["heron", "sedge"])
    model = train_model(Params(one).duplicate(), str(tmp_path / "child"))
    child = tmp_path / "child" / "model.tar.gz"
    two = begun_with(config, child, tmp_path, ["adder"])
    last = train_model(Params(two).duplicate(), str(tmp_path / "grandchild"))
    for path in map(Path, (parent, files.options, files.weights)):
        path.rename(path.with_suffix(".away"))
    for archive_file, trained in (
        (child, model),
        (tmp_path / "grandchild" / "model.tar.gz", last),
    ):
        archive = load_archive(archive_file)
        assert archive.config.get("model").get("type") == "simple_tagger"
        words = archive.model.vocab.get_token_to_index_vocabulary("tokens")
        assert words == trained.vocab.get_token_to_index_vocabulary("tokens")
        assert "heron" in words
        for name, tensor in trained.state_dict().items():
            assert torch.equal(archive.model.state_dict()[name], tensor)
        predictor = Predictor.from_archive(archive)  # the model's default
        assert predictor.predict("the dog sees a heron")["tags"]
    # The run's own config still says what it was begun with.
    written = json.loads((tmp_path / "child" / "config.json").read_text())
    assert written["model"]["type"] == "from_archive"


def test_a_parent_that_is_gone_is_named_and_kept(task, tmp_path, caplog, monkeypatch):
    config, _ = task
    train_model(Params(config).duplicate(), str(tmp_path / "parent"))
    parent = tmp_path / "parent" / "model.tar.gz"
    child = Params(begun_with(config, parent, tmp_path)).duplicate()
    train_model(child, str(tmp_path / "child"))
    from allennlp.models.archival import archive_model

    parent.unlink()
    # AllenNLP's training takes the handlers of the root logger.
    monkeypatch.setattr(from_archive.logger, "handlers", [caplog.handler])
    archive_model(str(tmp_path / "child"))
    assert "The archive cannot be loaded without its parent archive" in caplog.text
    with tarfile.open(tmp_path / "child" / "model.tar.gz") as archive:
        config = json.loads(archive.extractfile("config.json").read())
    assert config["model"]["type"] == "from_archive"


def test_new_labels_are_an_error_that_names_them(config, tmp_path):
    config["trainer"] |= {"num_epochs": 1, "callbacks": []}
    train_model(Params(config).duplicate(), str(tmp_path / "parent"))
    archive = tmp_path / "parent" / "model.tar.gz"
    (tmp_path / "new").write_text("the###D\theron###BIRD\n")
    message = r"not trained with: \['BIRD'\] in the namespace 'labels', expected some of its 3"
    with pytest.raises(ConfigurationError, match=message):
        evaluate_from_archive(str(archive), str(tmp_path / "new"), extend_vocab=True)
    child = begun_with(config, archive, tmp_path)
    child["train_data_path"] = str(tmp_path / "new")
    with pytest.raises(ConfigurationError, match=message):
        train_model(Params(child).duplicate(), str(tmp_path / "child"))
    # New words alone are welcome.
    (tmp_path / "words").write_text("the###D\theron###N\n")
    evaluate_from_archive(str(archive), str(tmp_path / "words"), extend_vocab=True)


def test_without_the_default_callbacks_the_parent_stays_in_the_config(tmp_path):
    """None of them has saved the vocabulary that a model without its parent would need."""
    config = {"model": {"type": "from_archive", "archive_file": "parent.tar.gz"}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "trainer": {"enable_default_callbacks": False}}))
    assert from_archive.archived_config(path) is None
