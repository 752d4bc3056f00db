import errno
import fcntl
import os
import signal

import pytest

from elmo_plugin.bilm.files.folder_lock import NAME, lock_folder


def test_one_at_a_time(tmp_path):
    with lock_folder(tmp_path), pytest.raises(ValueError, match="in use by another process"):
        lock_folder(tmp_path)
    lock_folder(tmp_path).close()


def test_a_forked_process_does_not_keep_it(tmp_path):
    lock = lock_folder(tmp_path)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.write(writer, b"here")
        signal.pause()
        os._exit(0)
    try:
        os.read(reader, 4)
        lock.close()
        lock_folder(tmp_path).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_that_was_taken_away_meanwhile_holds_nothing(tmp_path, monkeypatch):
    """As when its holder ends between the opening of the file and the locking of it."""
    flock, calls = fcntl.flock, []

    def take_away_first(file, how):
        calls.append(file)
        if len(calls) == 1:
            (tmp_path / NAME).unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", take_away_first)
    with lock_folder(tmp_path), pytest.raises(ValueError, match="in use by another process"):
        lock_folder(tmp_path)


def test_a_file_system_without_locks_is_not_called_another_process(tmp_path, monkeypatch):
    def flock(file, how):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ValueError, match=r"cannot be locked: .*Function not"):
        lock_folder(tmp_path)


def test_file_of_another_program_is_not_taken_for_a_lock(tmp_path):
    (tmp_path / NAME).write_text("mine")
    with pytest.raises(ValueError, match=r"lock has 4 bytes, expected none or an empty lock file"):
        lock_folder(tmp_path)
