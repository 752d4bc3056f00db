"""Cache of byte strings by key that several processes may share: one SQLite file per user."""

import hashlib
import logging
import os
import sqlite3
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from elmo_plugin.bilm.kernels.fork_safe_lock import fork_safe_lock

logger = logging.getLogger(__name__)

FILE = "layers.sqlite"
PAGE_BYTES = 1 << 14
# Time to wait while another process holds the lock, before the store is given up.
SECONDS_TO_WAIT = 6.0
# Larger values are not stored. SQLite's own limit on a row, 1 GB, is slightly higher.
MOST_BYTES_OF_A_VALUE = 900_000_000

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# `sqlite3` cannot decode a message that quotes a damaged schema.
_ERRORS = (OSError, sqlite3.Error, UnicodeDecodeError)
_NOT_WRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)


class BlobStore:
    """
    Cache of byte strings in a directory, by key. It has at most `most_bytes`; a full one stores
    nothing more, but can still be read. The directory `root` is made when it is first needed.

    No method raises: a value that cannot be read counts as missing, one that cannot be written is
    not stored, and a warning says why. SQLite does not flush to disk; checksums show damage.

    Anyone who can write to the file controls the values. Each user therefore has a subfolder, which
    is not used if it is a link, belongs to another user, or is writable by others.
    """

    def __init__(self, root: Path, most_bytes: int) -> None:
        self._root = root
        self._most_pages = most_bytes // PAGE_BYTES
        self._lock = fork_safe_lock()
        self._connection: sqlite3.Connection | None = None
        self._process: int | None = None
        self._full = self._disabled = self._remade = False

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return a dict of the stored values; keys without a stored value are absent."""
        found: dict[bytes, bytes] = {}
        with self._lock:
            try:
                connection = self._connected()
                if connection is None:
                    return found
                for key in keys:
                    row = connection.execute(
                        "SELECT checksum, value FROM entries WHERE key = ?", (key,)
                    ).fetchone()
                    if row is None:
                        continue
                    checksum, value = row
                    if isinstance(value, bytes) and checksum == _checksum(key, value):
                        found[key] = value
                        continue
                    logger.warning("an entry of the cache %s is damaged", self._root)
                    with connection:
                        connection.execute("DELETE FROM entries WHERE key = ?", (key,))
            except _ERRORS as error:
                self._failed(error)
        return found

    def put(self, values: Mapping[bytes, memoryview]) -> None:
        """Store values by key until the cache is full."""
        with self._lock:
            if self._full:
                return
            try:
                connection = self._connected()
                if connection is None:
                    return
                rows = (
                    (key, _checksum(key, value), value)
                    for key, value in values.items()
                    if len(value) <= MOST_BYTES_OF_A_VALUE
                )
                with connection:  # commits, or rolls back after an error
                    connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
            except _ERRORS as error:
                self._failed(error, writing=True)

    def _connected(self) -> sqlite3.Connection | None:
        if self._disabled:
            return None
        if self._process != os.getpid():  # a connection must not be used after a fork
            self._connection, self._process = None, os.getpid()
        if self._connection is None:
            self._connection = _connect(_own_folder(self._root) / FILE, self._most_pages)
        return self._connection

    def _failed(self, error: Exception, writing: bool = False) -> None:
        undecodable = isinstance(error, UnicodeDecodeError)
        code = sqlite3.SQLITE_CORRUPT if undecodable else getattr(error, "sqlite_errorcode", 0)
        code &= 0xFF
        if code in _DAMAGED and not self._remade:
            logger.warning("the cache %s is damaged (%s); it is recreated", self._root, error)
            self._connection, self._remade = None, True
            try:
                for name in (FILE, f"{FILE}-journal"):
                    (_own_folder(self._root) / name).unlink(missing_ok=True)
            except OSError as other:
                self._failed(other)
        elif code in _NOT_WRITABLE or (code == sqlite3.SQLITE_IOERR and writing):
            self._full = True
            logger.warning(
                "the cache %s takes no more (%s); further sentences are not kept", self._root, error
            )
        else:
            self._disabled = self._full = True
            self._connection = None
            reason = "is locked by another process" if code in _BUSY else "cannot be used"
            logger.warning(
                "the cache %s %s (%s); the run continues without it", self._root, reason, error
            )


def _own_folder(root: Path) -> Path:
    """Make and return this user's subfolder; an `OSError` is raised if others can write to it."""
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f"user-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise OSError(f"{root} belongs to {_owner(root.stat())}: {error}") from error
    for path, is_kind in ((folder, stat.S_ISDIR), (folder / FILE, stat.S_ISREG)):
        try:
            about = path.lstat()
        except FileNotFoundError:
            continue
        if not is_kind(about.st_mode):
            raise OSError(f"{path} is a link or something else, expected a plain folder and file")
        if about.st_uid != os.geteuid():
            raise OSError(f"{path} belongs to {_owner(about)}, expected your own")
        if about.st_mode & 0o022:
            raise OSError(f"{path} can be written to by others, expected by you alone")
    return folder


def _owner(about: os.stat_result) -> str:
    try:
        import pwd

        return f"{pwd.getpwuid(about.st_uid).pw_name} (user {about.st_uid})"
    except (ImportError, KeyError):
        return f"user {about.st_uid}"


def _connect(path: Path, most_pages: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=SECONDS_TO_WAIT, isolation_level="IMMEDIATE", check_same_thread=False
    )
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute(f"PRAGMA max_page_count = {max(1, most_pages)}")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS entries (key BLOB UNIQUE, checksum BLOB, value BLOB)"
    )
    return connection


def _checksum(key: bytes, value: bytes | memoryview) -> bytes:
    return hashlib.blake2b(value, digest_size=16, key=key).digest()
