import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_bilm import random_bilm

from elmo_plugin.bilm.files import whole_file as whole_file_module
from elmo_plugin.bilm.files.weights import load_weights, save_weights
from elmo_plugin.bilm.files.whole_file import sweep, whole_file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_replaced_only_by_what_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), whole_file(path) as aside:
        aside.write_text("half" * 10_000 + "\ud800")
    assert path.read_text() == "old"
    with whole_file(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def dead_process():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_what_a_killed_process_left_is_swept(tmp_path):
    dead, alive, host = dead_process(), os.getppid(), whole_file_module._host()
    swept = [f".a.txt.{dead}.part", f".a.txt.{host}.{dead}-3.part", f".a.txt.{os.getpid()}.part"]
    kept = [
        f".a.txt.{alive}.part",
        f".a.txt.{host}.{alive}-0.part",
        f".a.txt.another-host.{dead}-0.part",
        f".b.txt.{dead}.part",
        f".a.txt.{dead}.part.txt",
    ]
    for name in (*swept, *kept):
        (tmp_path / name).write_text("half")
    with whole_file(tmp_path / "a.txt") as one, whole_file(tmp_path / "a.txt") as other:
        assert one != other
        assert one.exists()
    assert names(tmp_path) == sorted([*kept, "a.txt"])


def test_machines_whose_names_begin_alike_are_two(tmp_path, monkeypatch):
    left = []
    for number in range(2):
        monkeypatch.setattr(socket, "gethostname", lambda n=number: f"elmo-train-worker-{n}")
        left.append(f".a.txt.{whole_file_module._host()}.{dead_process()}-0.part")
        (tmp_path / left[-1]).write_text("half")
    sweep(tmp_path)  # as the second
    assert names(tmp_path) == left[:1]


def test_a_folder_is_swept_of_all_of_them(tmp_path):
    dead, alive, host = dead_process(), os.getppid(), whole_file_module._host()
    swept = [f".a.txt.{dead}.part", f".b.th.{host}.{dead}-3.part"]
    kept = [
        f".b.th.{host}.{alive}-0.part",
        f".b.th.another-host.{dead}-0.part",
        "b.part",
        "a.1.part",
    ]
    for name in (*swept, *kept):
        (tmp_path / name).write_text("half")
    sweep(tmp_path)
    assert names(tmp_path) == sorted(kept)


def test_no_link_is_written_through(tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.setattr("elmo_plugin.bilm.files.whole_file._numbers", iter([0]))
    planted = tmp_path / f".a.txt.{whole_file_module._host()}.{os.getpid()}-0.part"
    monkeypatch.setattr("elmo_plugin.bilm.files.whole_file.sweep", lambda *_: None)
    planted.symlink_to(tmp_path / "mine.txt")
    with pytest.raises(FileExistsError), whole_file(tmp_path / "a.txt") as aside:
        aside.write_text("theirs")
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a folder"])
def test_what_is_no_file_is_not_replaced(tmp_path, kind):
    path = tmp_path / "a"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        (tmp_path / "b").mkdir()
        path.symlink_to(tmp_path / "b")
    before, found = path.lstat(), names(tmp_path)
    with (
        pytest.raises(ValueError, match=r"a is a folder or a device, expected the name of a file"),
        whole_file(path),
    ):
        raise AssertionError("the block was run")
    after = path.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert names(tmp_path) == found


def test_a_device_is_not_replaced():
    with (
        pytest.raises(ValueError, match=r"/dev/null is a folder or a device"),
        whole_file(os.devnull),
    ):
        raise AssertionError("the block was run")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(mode)
    with whole_file(path) as aside:
        assert stat.S_IMODE(aside.stat().st_mode) == 0o600
        aside.write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_text() == "new"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path, is_there):
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "b.txt", tmp_path / "a.txt"
    if is_there:
        target.write_text("old")
    link.symlink_to(Path("store") / "b.txt")
    with whole_file(link) as aside:
        assert aside.parent == target.parent
        aside.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(tmp_path) == ["a.txt", "store"]
    assert names(target.parent) == ["b.txt"]


FULL = """
import resource, signal, sys
from tiny_bilm import random_bilm
from elmo_plugin.bilm.files.weights import save_weights

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
bilm = random_bilm(cell_size=1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_weights(bilm, sys.argv[1])
except OSError as error:
    print(error)
"""


TESTS = Path(__file__).resolve().parents[2]


def test_a_disk_without_room_names_the_file(tmp_path):
    path = tmp_path / "weights.hdf5"
    save_weights(random_bilm(), path)
    child = subprocess.run(
        [sys.executable, "-c", FULL, str(path)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{TESTS}:{TESTS.parent}",
        },
    )
    assert child.returncode == 0, child.stderr
    assert f"{path}" in child.stdout
    assert "could not be written" in child.stdout
    assert names(tmp_path) == ["weights.hdf5"]
    load_weights(random_bilm(seed=2), path)


def test_errors_of_other_files_are_theirs(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"nowhere\.txt"),
        whole_file(tmp_path / "a.txt") as aside,
    ):
        aside.write_text((tmp_path / "nowhere.txt").read_text())
    missing = tmp_path / "none" / "a.txt"
    with (
        pytest.raises(FileNotFoundError, match=rf"could not be written .*{missing}"),
        whole_file(missing),
    ):
        pass
