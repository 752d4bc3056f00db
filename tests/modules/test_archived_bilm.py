"""Archives whose configs name a biLM by its files load anywhere, and do nothing but load."""

import io
import json
import logging
import pickle
import tarfile

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import load_archive
from tagging_task import tagger_config, with_elmo, write_task
from tiny_bilm import random_bilm, write

import elmo_plugin.plugin
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.modules import archived_bilm
from elmo_plugin.modules.archived_bilm import OPTIONS_FILE, write_options
from elmo_plugin.modules.elmo import Elmo

OPTIONS, WEIGHTS = "bilm/options.json", "bilm/weights.hdf5"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    assert elmo_plugin.plugin
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    (tmp_path / "bilm").mkdir()
    write(tmp_path / "bilm")
    return tmp_path


def train(folder, **arguments):
    config = with_elmo(tagger_config(), 12, **arguments)
    train_model(Params(config), folder / "out")
    return "out/model.tar.gz"


def remove_bilm(folder):
    for path in (folder / "bilm").iterdir():
        path.unlink()


def evaluate(archive):
    return evaluate_from_archive(archive, "dev.txt", cuda_device=-1)


def test_an_archive_by_paths_stands_alone(folder):
    archive = train(folder, options_file=OPTIONS, weight_file=WEIGHTS)
    before = evaluate(archive)
    remove_bilm(folder)
    assert evaluate(archive) == before
    with tarfile.open(archive) as file:
        assert OPTIONS_FILE in file.getnames()


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ({"options_file": OPTIONS, "weight_file": WEIGHTS, "options": None}, (OPTIONS, WEIGHTS)),
        ({"pretrained_file": "embedded"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_every_way_to_name_a_bilm_is_archived(folder, monkeypatch, model, named):
    monkeypatch.setattr(archived_bilm, "DEFAULT", OPTIONS)  # no download
    for config in (
        {"model": {"elmo": model}},
        {"model": {"embedder": {"type": "elmo_token_embedder", **model}}},
    ):
        (folder / "config.json").write_text(json.dumps(config))
        assert write_options(folder) == [OPTIONS_FILE]
        (entry,) = json.loads((folder / OPTIONS_FILE).read_text())
        assert (entry["options_file"], entry["weight_file"]) == named
        embedded = "pretrained_file" in model
        assert entry["options"]["lstm"]["projection_dim"] == (256 if embedded else 6)


def test_another_bilm_at_the_same_path_is_not_taken(folder):
    archive = train(folder, options_file=OPTIONS, weight_file=WEIGHTS)
    before = evaluate(archive)
    write(folder / "bilm", random_bilm(cell_clip=0.1, seed=2))
    assert evaluate(archive) == before


def test_one_made_without_options_says_how_to_mend_it(folder):
    archive = train(folder, options_file=OPTIONS, weight_file=WEIGHTS)
    with tarfile.open(archive) as file:
        file.extractall("files", filter="data")
    (folder / "files" / OPTIONS_FILE).unlink()
    content = (folder / OPTIONS).read_text()
    remove_bilm(folder)
    with pytest.raises(ConfigurationError, match=r"bring the options\.json .*--overrides"):
        load_archive("files")
    (folder / "mine.json").write_text(content)
    key = "model.text_field_embedder.token_embedders.elmo.options_file"
    model = load_archive("files", overrides={key: "mine.json"}).model
    trained = load_archive(archive).model.state_dict()
    assert all(torch.equal(trained[name], value) for name, value in model.state_dict().items())


def test_the_cache_is_the_runs_and_not_the_archives(folder):
    arguments = {"options_file": OPTIONS, "weight_file": WEIGHTS, "state": "reset"}
    archive = train(folder, cache="vectors", **arguments)
    (folder / "vectors").rename(folder / "elsewhere")
    evaluate(archive)
    assert not (folder / "vectors").exists()


def test_random_weights_are_said_aloud_but_not_of_an_archive(folder, caplog):
    options = options_dict(random_bilm().options)
    archive = train(folder, options=options, pretrained_file=WEIGHTS)
    # Training sets the root's handlers anew.
    logger = logging.getLogger("elmo_plugin.bilm.use.elmo")
    logger.addHandler(caplog.handler)
    load_archive(archive)
    assert "RANDOM" not in caplog.text
    Elmo(options=options)
    logger.removeHandler(caplog.handler)
    assert "The biLM has RANDOM weights" in caplog.text


def tampered(folder, archive, add):
    with tarfile.open(archive) as file:
        file.extractall(folder / "files", filter="data")
    path = folder / "tampered.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in ("config.json", "weights.th", "vocabulary", "meta.json", OPTIONS_FILE):
            file.add(folder / "files" / name, arcname=name)
        add(file)
    return str(path)


def text_member(name):
    def add(file):
        member = tarfile.TarInfo(name)
        member.size = 4
        file.addfile(member, io.BytesIO(b"evil"))

    return add


def link_member(target, kind):
    def add(file):
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, target
        file.addfile(member)

    return add


@pytest.mark.parametrize(
    "add",
    [
        text_member("../evil"),
        text_member("vocabulary/../../evil"),
        link_member("/etc/passwd", tarfile.SYMTYPE),
        link_member("config.json", tarfile.LNKTYPE),
        link_member("", tarfile.FIFOTYPE),
    ],
    ids=["parent", "parent within", "symlink", "hard link", "fifo"],
)
def test_members_that_are_no_plain_files_are_refused(folder, add, monkeypatch):
    archive = train(folder, options_file=OPTIONS, weight_file=WEIGHTS)
    (folder / "extracted").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "extracted"))
    with pytest.raises(
        ConfigurationError, match=r"the archive holds '.*', .*expected files and folders"
    ):
        load_archive(tampered(folder, archive, add))
    assert not list(folder.rglob("evil"))


class Evil:
    def __reduce__(self):
        return (open, ("evil", "w"))


def test_a_pickle_in_the_weights_is_not_run(folder):
    archive = train(folder, options_file=OPTIONS, weight_file=WEIGHTS)
    with tarfile.open(archive) as file:
        file.extractall("files", filter="data")
    for make in (
        lambda file: torch.save({"x": Evil()}, file),
        lambda file: pickle.dump(Evil(), file),
    ):
        with (folder / "files" / "weights.th").open("wb") as file:
            make(file)
        with pytest.raises(ConfigurationError, match="the archive files cannot be loaded"):
            load_archive("files")
    assert not list(folder.rglob("evil"))
