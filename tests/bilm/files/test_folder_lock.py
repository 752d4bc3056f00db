import errno
import fcntl
import os
import signal
from unittest.mock import Mock

import pytest
from filelock import FileLock

from elmo_plugin.bilm.files.folder_lock import NAME, locked_folder


def test_one_at_a_time(tmp_path):
    with (
        locked_folder(tmp_path),
        pytest.raises(ValueError, match="in use by another process"),
        locked_folder(tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())
    with locked_folder(tmp_path):
        pass


def child_that(function):
    reader, writer = os.pipe()
    if not (child := os.fork()):
        function(lambda: os.write(writer, b"here"))
        signal.pause()
        os._exit(0)
    os.read(reader, 4)
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_forked_process_does_not_keep_it(tmp_path):
    with locked_folder(tmp_path):
        child = child_that(lambda here: here())
    try:
        with locked_folder(tmp_path):
            pass
    finally:
        end(child)


def test_a_killed_process_does_not_keep_it(tmp_path):
    def lock(here):
        with locked_folder(tmp_path):
            here()
            signal.pause()

    child = child_that(lock)
    with pytest.raises(ValueError, match="in use by another process"), locked_folder(tmp_path):
        pass
    end(child)
    with locked_folder(tmp_path, wait=True):
        pass


def test_a_lock_that_was_taken_away_meanwhile_holds_nothing(tmp_path, monkeypatch):
    """As when its holder ends between the opening of the file and the locking of it."""
    flock, calls = fcntl.flock, []

    def take_away_first(file, how):
        calls.append(file)
        if len(calls) == 1:
            (tmp_path / NAME).unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", take_away_first)
    with (
        locked_folder(tmp_path, wait=True),
        pytest.raises(ValueError, match="in use by another process"),
        locked_folder(tmp_path),
    ):
        pass
    assert len(calls) > 2


@pytest.mark.parametrize(
    ("name", "error", "expected", "message"),
    [
        ("a", OSError(errno.ENOSYS, "Function not"), ValueError, "a cannot be locked: .*Function"),
        ("a", FileNotFoundError(), FileNotFoundError, "there is no folder .*a"),  # meanwhile
        ("b", None, FileNotFoundError, "there is no folder .*b"),
        ("c", None, ValueError, "lock has 4 bytes, expected none or an empty lock file"),
    ],
    ids=["no locks", "removed meanwhile", "missing", "file of another program"],
)
def test_what_cannot_be_locked(tmp_path, monkeypatch, name, error, expected, message):
    for folder in "ac":
        (tmp_path / folder).mkdir()
    (tmp_path / "c" / NAME).write_text("mine")
    if error is not None:
        monkeypatch.setattr(FileLock, "acquire", Mock(side_effect=error))
    with pytest.raises(expected, match=message), locked_folder(tmp_path / name):
        raise AssertionError("the block was run")
    assert (tmp_path / "c" / NAME).read_text() == "mine"
    assert not (tmp_path / "b").exists()
