import os
import stat
from pathlib import Path

import pytest

from elmo_plugin.bilm.files.atomic_write import (
    atomic_write,
    check_output_path,
    remove_temporary_files,
)
from elmo_plugin.bilm.files.weights import load_weights, save_weights
from tests.fresh_process import run_core as run
from tests.tiny_bilm import random_bilm


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_is_replaced_only_when_the_block_succeeds(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic_write(path) as temporary:
        temporary.write_text("half" * 10_000 + "\ud800")
    assert path.read_text() == "old"
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_temporary_files_of_all_names_are_removed_from_a_folder(tmp_path):
    left = [".a.txt.0123456789ab.part", ".b.th.0123456789ab.12-0.part"]
    kept = ["b.part", "a.1.part", ".a.txt.12.part", ".a.txt.0123456789ab.part.txt"]
    for name in (*left, *kept):
        (tmp_path / name).write_text("half")
    with atomic_write(tmp_path / "a.txt") as one, atomic_write(tmp_path / "a.txt") as other:
        assert one != other
        assert one.exists()
    assert names(tmp_path) == sorted([*left, *kept, "a.txt"])
    remove_temporary_files(tmp_path, "b.th")
    assert names(tmp_path) == sorted([left[0], *kept, "a.txt"])
    remove_temporary_files(tmp_path)
    assert names(tmp_path) == sorted([*kept, "a.txt"])


def test_planted_link_is_not_written_through(tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0123456789ab")
    (tmp_path / ".a.txt.0123456789ab.part").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(FileExistsError), atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("theirs")
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a folder", "device"])
def test_what_is_no_file_is_not_replaced(tmp_path, kind):
    path = Path(os.devnull) if kind == "device" else tmp_path / "a"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to a folder":
        (tmp_path / "b").mkdir()
        path.symlink_to(tmp_path / "b")
    before, found = path.lstat(), names(tmp_path)
    with (
        pytest.raises(ValueError, match=f"{path} is a folder or a device, expected the name of a"),
        atomic_write(path),
    ):
        raise AssertionError("the block was run")
    after = path.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert names(tmp_path) == found


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_mode_of_the_file_is_kept(tmp_path, mode):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(mode)
    with atomic_write(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_text() == "new"


@pytest.mark.parametrize("is_there", [True, False])
def test_link_stays_and_its_target_is_written(tmp_path, is_there):
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "b.txt", tmp_path / "a.txt"
    if is_there:
        target.write_text("old")
    link.symlink_to(Path("store") / "b.txt")
    with atomic_write(link) as temporary:
        assert temporary.parent == target.parent
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(tmp_path) == ["a.txt", "store"]
    assert names(target.parent) == ["b.txt"]


FULL = """
import resource, signal, sys
from tests.tiny_bilm import random_bilm
from elmo_plugin.bilm.files.weights import save_weights

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
bilm = random_bilm(cell_size=1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_weights(bilm, sys.argv[1])
except OSError as error:
    print(error)
"""


def test_error_of_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "weights.hdf5"
    save_weights(random_bilm(), path)
    child = run(FULL, path)
    assert f"{path}" in child.stdout
    assert "could not be written" in child.stdout
    assert names(tmp_path) == ["weights.hdf5"]
    load_weights(random_bilm(seed=2), path)


def test_errors_about_other_files_are_not_changed(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"nowhere\.txt"),
        atomic_write(tmp_path / "a.txt") as temporary,
    ):
        temporary.write_text((tmp_path / "nowhere.txt").read_text())
    missing = tmp_path / "none" / "a.txt"
    with (
        pytest.raises(FileNotFoundError, match=rf"could not be written .*{missing}"),
        atomic_write(missing),
    ):
        pass


@pytest.mark.parametrize("name", ["x" * 240, "link", "folder/a"])
def test_output_that_cannot_be_written_is_an_error_before_the_work(tmp_path, name):
    """A name with no room for the temporary file's; a link to a missing folder; a locked folder."""
    (tmp_path / "link").symlink_to(tmp_path / "none" / "a")
    (tmp_path / "folder").mkdir(mode=0o555)
    if name == "folder/a" and os.access(tmp_path / "folder", os.W_OK):
        pytest.skip("the superuser may write to any folder")
    with pytest.raises(OSError, match="could not be written"):
        check_output_path(tmp_path / name)
    check_output_path(tmp_path / "a")
    assert names(tmp_path) == ["folder", "link"]
