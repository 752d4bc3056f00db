"""A biLM in a folder or a ZIP: what NLPL and simple_elmo give out, and what is refused."""

import errno
import re
import shutil
import stat
import zipfile
from pathlib import Path

import pytest
import torch

from elmo_plugin import Elmo, ElmoEmbedder, load_bilm
from elmo_plugin.bilm.files.names import find_options, find_weights
from tests.many_langs_model import write_many_langs
from tests.tiny_bilm import OPTIONS, write

SENTENCE = ["The", "cat", "sat"]


@pytest.fixture
def nlpl(tmp_path):
    """As http://vectors.nlpl.eu/repository keeps one."""
    folder = tmp_path / "nlpl"
    folder.mkdir()
    files = write(folder)
    Path(files.weights).rename(folder / "model.hdf5")
    (folder / "meta.json").write_text('{"id": 1}')
    (folder / "vocab.txt.gz").write_bytes(b"\x1f\x8b")
    (folder / "README").write_text("About.")
    return folder


@pytest.fixture
def many_langs(tmp_path):
    folder = write_many_langs(tmp_path / "xx.model")
    (folder / "README").write_text("About.")
    (folder / "meta.json").write_text("{}")
    return folder


def zipped(folder, path, inside="", compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        if inside:
            archive.mkdir(inside.rstrip("/"))
        for file in sorted(folder.iterdir()):
            archive.write(file, inside + file.name)
    return path


def layers(*arguments):
    return torch.from_numpy(ElmoEmbedder(*arguments, state="reset").embed_sentence(SENTENCE))


@pytest.mark.parametrize("inside", ["", "145/", "a/b/"])
def test_nlpls(nlpl, tmp_path, inside):
    path = zipped(nlpl, tmp_path / "145.zip", inside)
    expected = layers(nlpl / "options.json", nlpl / "model.hdf5")
    for arguments in ((nlpl,), (str(path),), (None, path), (path, path), (nlpl, path)):
        assert torch.equal(layers(*arguments), expected)
    assert find_options(path) == find_options(nlpl) == OPTIONS
    assert find_weights(path, None) == path
    # The released name, and the options of one with the weights of a ZIP.
    (nlpl / "model.hdf5").rename(nlpl / "weights.hdf5")
    assert torch.equal(layers(nlpl), expected)
    assert torch.equal(layers(nlpl / "options.json", path), expected)


@pytest.mark.parametrize("inside", ["", "xx.model/"])
def test_many_langs(many_langs, tmp_path, inside):
    path = zipped(many_langs, tmp_path / "136.zip", inside)
    assert torch.equal(layers(path), layers(many_langs))
    elmo = Elmo(path, None, 1, dropout=0.0)
    assert elmo(elmo.batch_to_ids([SENTENCE]))["mask"].sum() == 3


def test_nothing_is_left_on_disk(nlpl, tmp_path, monkeypatch):
    import tempfile

    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    path = zipped(nlpl, tmp_path / "145.zip")
    load_bilm(path)
    (nlpl / "model.hdf5").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"145.zip/model.hdf5 is not a whole HDF5 file"):
        load_bilm(zipped(nlpl, tmp_path / "145.zip"))
    assert list(aside.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["../options.json", "a/../../x", "/etc/x", "C:\\x", "\\\\host\\share\\x", "a\\..\\x", "C:x"],
)
def test_entries_outside_the_folder(nlpl, tmp_path, name):
    path = zipped(nlpl, tmp_path / "145.zip")
    with zipfile.ZipFile(path, "a") as archive:
        entry = zipfile.ZipInfo("x")
        entry.filename = name
        archive.writestr(entry, "x")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=re.escape(f"has the entry {name!r}, which would lie out")):
        load_bilm(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_a_zip_is_no_link(nlpl, tmp_path):
    secret = tmp_path / "secret.json"
    shutil.copyfile(nlpl / "options.json", secret)
    path = tmp_path / "145.zip"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("options.json")
        entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, str(secret))
        archive.write(nlpl / "model.hdf5", "model.hdf5")
    with pytest.raises(ValueError, match=r"145.zip/options.json is not a JSON file"):
        load_bilm(path)


def rewrite(path, changes):
    """Entries are replaced, and for `None` left out."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()} | changes
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            if content is not None:
                archive.writestr(name, content)


def add_zeros(path, megabytes):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, size in megabytes.items():
            archive.writestr(name, bytes(size << 20))


def cut(path, size):
    path.write_bytes(path.read_bytes()[:-size])


def flip(path, bit):
    content = bytearray(path.read_bytes())
    # In the weights' numbers, which a ZIP has a checksum of.
    content[len(content) // 2] ^= bit
    path.write_bytes(content)


NAMES = ("README", "meta.json", "model.hdf5", "options.json", "vocab.txt.gz")
# How the ZIP is spoiled, and what the error says.
ERRORS = [
    (rewrite, {"options.json": None}, r"has 0 biLMs \('README, meta.json, model.hdf5, vocab.txt"),
    (
        rewrite,
        {"model.hdf5": None},
        "145.zip has README, meta.json, options.json, vocab.txt.gz, expec",
    ),
    (rewrite, {"a/options.json": b"{}"}, "145.zip has 2 biLMs"),
    (rewrite, {"weights.hdf5": b""}, "145.zip has both model.hdf5 and weights.hdf5, expected one"),
    (rewrite, dict.fromkeys(NAMES), r"145.zip has 0 biLMs \(''\)"),
    (cut, 100, "145.zip is not a whole ZIP, expected a biLM's files"),
    (flip, 1, "145.zip is not a whole ZIP, .*Bad CRC-32 for file 'model.hdf5'"),
    (rewrite, {"options.json": b"{}"}, "145.zip/options.json: the key"),
    (add_zeros, {"a.json": 200}, "a.json has 209715200 bytes, [0-9]* more than a ZIP of this size"),
    (add_zeros, {f"{i}.json": 1 for i in range(99)}, "1048576 bytes, .* than a ZIP"),
    (add_zeros, {"weights.hdf5": 200}, "weights.hdf5 has 2"),
    (rewrite, {f"{i}": b"" for i in range(1 << 13)}, "145.zip has 8197 entries, expected a biLM's"),
]


@pytest.mark.parametrize(("spoil", "how", "expected"), ERRORS)
def test_errors(nlpl, tmp_path, spoil, how, expected):
    path = zipped(nlpl, tmp_path / "145.zip", compression=zipfile.ZIP_STORED)
    spoil(path, how)
    with pytest.raises((ValueError, FileNotFoundError), match=expected):
        load_bilm(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_however_it_is_packed(nlpl, tmp_path, compression):
    """Each of them has errors of its own, and more than one."""
    path = zipped(nlpl, tmp_path / "145.zip", compression=compression)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("model.hdf5")
    start = entry.header_offset + 30 + len(entry.filename)
    for place in (0, 2, 4, 6, 9, 20, entry.compress_size // 2):
        damaged = bytearray(content)
        for index in range(start + place, start + place + 4):
            damaged[index] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"145\.zip is not a whole ZIP, expected a biLM's"):
            load_bilm(path)


def test_a_name_in_a_zip_that_is_no_utf_8(nlpl, tmp_path):
    content = bytearray(zipped(nlpl, tmp_path / "145.zip").read_bytes())
    entry = content.index(b"PK\x01\x02")  # in the central directory
    content[entry + 9] |= 0x08  # flag of UTF-8
    content[entry + 46] = 0x85
    (tmp_path / "145.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"145\.zip is not a whole ZIP"):
        load_bilm(tmp_path / "145.zip")


def test_only_the_files_of_the_bilm_are_unpacked(nlpl, tmp_path, monkeypatch):
    """Large entries beside them stay empty, whatever their names end with."""
    path = zipped(nlpl, tmp_path / "145.zip")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name in ("other.hdf5", "token_embedder.pkl.pkl", "words.dic", "a/model.hdf5"):
            archive.writestr(name, bytes(1 << 24))
    written = []

    def copy(packed, file):
        file.write(packed.read())
        written.append(file.tell())

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    load_bilm(path)
    assert sum(written) < 1 << 22


def test_a_disk_that_is_full_is_no_damage(nlpl, tmp_path, monkeypatch):
    path = zipped(nlpl, tmp_path / "145.zip")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left on device"):
        load_bilm(path)


def test_names_too_long_for_a_file(nlpl, tmp_path):
    path = zipped(nlpl, tmp_path / "145.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("n" * 300, "not read")
    load_bilm(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("ü" * 140 + ".json", "{}")
    with pytest.raises(ValueError, match=r"145\.zip is not a whole ZIP, .*File name too long"):
        load_bilm(path)


def test_twice_and_encrypted(nlpl, tmp_path):
    path = zipped(nlpl, tmp_path / "145.zip")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.write(nlpl / "options.json", "options.json")
    with pytest.raises(ValueError, match=r"145.zip has options.json twice, expected it once"):
        load_bilm(path)
    path = zipped(nlpl, tmp_path / "146.zip", compression=zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(sign)
        while start >= 0:
            content[start + place] |= 1
            start = content.find(sign, start + 1)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"146.zip: meta.json is encrypted|146.zip: options.json"):
        load_bilm(path)


def test_wrong_folders(tmp_path, nlpl):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty has no files, expected a biLM's files"):
        load_bilm(empty)
    for number in range(20):
        (empty / f"{number:02d}").touch()
    with pytest.raises(FileNotFoundError, match=r"has 00, 01, .*, 07 and 12 more, expected a biLM"):
        load_bilm(empty)


def test_a_url_of_a_zip(nlpl, tmp_path, monkeypatch):
    """In the cache of `cached_path` a file has no ending."""
    from elmo_plugin.bilm.files import names

    path = zipped(nlpl, tmp_path / "145.zip").rename(tmp_path / "0a1b2c.3d4e")
    asked = []
    monkeypatch.setattr(names, "fetch", lambda url, argument: asked.append(url) or path)
    url = "http://vectors.nlpl.eu/repository/11/145.zip"
    assert torch.equal(layers(url), layers(nlpl))
    assert set(asked) == {url}
