"""Damaged archives end in one error that names the archive and what is wrong with it."""

import io
import json
import pickle
import re
import shutil
import tarfile

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model, load_archive

import elmo_plugin.plugin
from elmo_plugin.modules.archived_bilm import OPTIONS_FILE, write_options
from tests.fresh_process import allennlp
from tests.tagging_task import tagger_config, with_elmo, write_task
from tests.tiny_bilm import write

PLUGIN = ["--include-package", "elmo_plugin"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a finished run."""
    assert elmo_plugin.plugin
    folder = tmp_path_factory.mktemp("run")
    write_task(folder)
    files = write(folder)
    config = with_elmo(
        tagger_config(), 12, options_file=str(files.options), weight_file=str(files.weights)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train_model(Params(config), folder / "out")
    return folder / "out"


@pytest.fixture
def files(run, tmp_path):
    """The files of the run's archive, in a folder."""
    with tarfile.open(run / "model.tar.gz") as archive:
        archive.extractall(tmp_path / "files", filter="data")
    return tmp_path / "files"


def packed(files, *members):
    path = files.parent / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(files.iterdir()):
            archive.add(file, arcname=file.name)
        for member in members:
            archive.addfile(member, io.BytesIO(b"evil"))
    return path


def refused(archive, named="", **arguments):
    """The archive is named, and what is wrong."""
    message = re.escape(f"the archive {archive} cannot be loaded (")
    with pytest.raises(ConfigurationError, match=f"^{message}.*{re.escape(named)}"):
        load_archive(archive, **arguments)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"text",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-5],
        # The middle of the file is in the weights: loading did not notice.
        lambda content: flipped(content, len(content) // 2),
        lambda content: flipped(content, len(content) - 6),
    ],
    ids=["empty", "text", "half", "without its end", "flipped bit", "flipped checksum"],
)
def test_no_complete_archive(damage, run, tmp_path, monkeypatch):
    path = tmp_path / "model.tar.gz"
    path.write_bytes(damage((run / "model.tar.gz").read_bytes()))
    (tmp_path / "extracted").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "extracted"))
    refused(path)
    assert not list((tmp_path / "extracted").iterdir())


def flipped(content, position):
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.mark.parametrize("as_folder", [False, True])
@pytest.mark.parametrize("name", ["config.json", "weights.th", "vocabulary"])
def test_a_missing_file(name, as_folder, files):
    if (files / name).is_dir():
        shutil.rmtree(files / name)
    else:
        (files / name).unlink()
    # Without weights.th, AllenNLP looks for best.th.
    refused(files if as_folder else packed(files), name.replace("weights", "best"))


def member(name, kind=tarfile.REGTYPE, target=""):
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size = kind, target, 4 * (kind == tarfile.REGTYPE)
    return found


@pytest.mark.parametrize(
    "added",
    [
        member("../evil"),
        member("vocabulary/../../evil"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.LNKTYPE, "config.json"),
        member("link", tarfile.FIFOTYPE),
    ],
    ids=["parent", "parent within", "symlink", "hard link", "fifo"],
)
def test_members_that_are_no_plain_files_are_refused(added, files, tmp_path, monkeypatch):
    (tmp_path / "extracted").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "extracted"))
    refused(packed(files, added), f"the archive holds {added.name!r}, ")
    assert not list(tmp_path.rglob("evil"))


class Evil:
    def __reduce__(self):
        return (open, ("evil", "w"))


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


PICKLES = [saved({"x": Evil()}), pickle.dumps(Evil())]
NO_MODEL = b'{"model": {"type": "none"}, "dataset_reader": {"type": "sequence_tagging"}}'


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        *(("config.json", content, "") for content in (b"\xff\xfe", b"", b"[]", b"{}")),
        ("config.json", b'{"model": ', "config.json:1:11"),
        ("config.json", NO_MODEL, "'none' is not a registered name for 'Model'"),
        (OPTIONS_FILE, b"[{", OPTIONS_FILE),
        (OPTIONS_FILE, b"[3]", OPTIONS_FILE),
        *(("weights.th", content, "") for content in (b"", b"text", b"PK\x03\x04" * 99)),
        *(pytest.param("weights.th", one, "", id=f"pickle {one[:2]}") for one in PICKLES),
        ("meta.json", b"{", "JSONDecodeError: "),
    ],
)
def test_a_damaged_file(name, content, named, files, monkeypatch):
    monkeypatch.chdir(files)
    (files / name).write_bytes(content)
    refused(packed(files), named)
    assert not list(files.rglob("evil"))


@pytest.mark.parametrize("change", ["shape", "names"])
def test_weights_of_another_model(change, files):
    weights = torch.load(files / "weights.th")
    if change == "shape":
        name = next(name for name in weights if "char_conv_0.weight" in name)
        weights[name] = weights[name][:1]
    else:
        weights = {"other": torch.ones(1)}
    torch.save(weights, files / "weights.th")
    refused(packed(files), "loading state")


def test_a_weights_file_that_does_not_exist(files):
    refused(files, "none.th", weights_file="none.th")


def test_an_archive_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.tar\.gz"):
        load_archive(tmp_path / "none.tar.gz")


def test_a_model_to_begin_with(files):
    """`train`, `find-lr` and `count-instances` come here with a model `from_archive`."""
    (files / "weights.th").unlink()
    source = Params({"type": "from_archive", "archive_file": str(files)})
    with pytest.raises(ConfigurationError, match=f"the archive {files} cannot be loaded"):
        Model.from_params(source)


def test_a_parent_that_was_damaged_since_does_not_cost_the_run(run, tmp_path):
    """`write_options` comes before the run's archive is written."""
    parent = tmp_path / "parent.tar.gz"
    parent.write_bytes((run / "model.tar.gz").read_bytes()[:100])
    config = {"model": {"type": "from_archive", "archive_file": str(parent)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert write_options(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_the_command_ends_with_that_line(command, run, tmp_path):
    (tmp_path / "cut.tar.gz").write_bytes((run / "model.tar.gz").read_bytes()[:3000])
    (tmp_path / "input").write_text("")
    environment = {"folder": tmp_path, "HOME": str(tmp_path)}
    child = allennlp(command, "cut.tar.gz", "input", *PLUGIN, status=1, **environment)
    last = child.stderr.splitlines()[-1]
    assert last.startswith("allennlp.common.checks.ConfigurationError: the archive cut.tar.gz ")
