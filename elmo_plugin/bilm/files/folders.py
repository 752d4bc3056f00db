"""
A biLM in one folder, or in a ZIP of one: as the NLPL repository (http://vectors.nlpl.eu/repository)
and simple_elmo keep them, and ELMoForManyLangs.
"""

import errno
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from elmo_plugin.bilm.files.many_langs import CONFIG, FILES, is_many_langs, many_langs_options
from elmo_plugin.bilm.files.options import read_options
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.model.options import ElmoOptions

try:
    from lzma import LZMAError
except ImportError:  # Pythons are built without it
    LZMAError = zlib.error  # type: ignore[misc, assignment]

OPTIONS = "options.json"
# NLPL's and simple_elmo's name, and the one that is released and exported.
WEIGHTS = ("model.hdf5", "weights.hdf5")
EXPECTED = (
    f"expected a biLM's files: {OPTIONS} and {' or '.join(WEIGHTS)} (bilm-tf, NLPL, simple_elmo), "
    f"or {', '.join(FILES)} (ELMoForManyLangs)"
)
# What is read of a ZIP, and how much at most: of weights, ten times the Original's.
SMALL_FILES, LARGE_FILES = {".json": 1 << 20, ".dic": 1 << 30}, {".hdf5": 1 << 32, ".pkl": 1 << 32}
# What reading a damaged ZIP raises, beside OSErrors.
DAMAGE = (zipfile.BadZipFile, EOFError, zlib.error, LZMAError, NotImplementedError)
MOST_ENTRIES = 1 << 12
# Bytes of a name; that of most file systems.
MOST_NAME = 255


def is_folder(path: Path) -> bool:
    """Whether this is a folder or a ZIP, and not a file of a biLM's."""
    if not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


@contextmanager
def unpacked(path: Path, with_weights: bool = True) -> Iterator[Path]:
    """
    A folder as it is; of a ZIP, a folder with the biLM's files in it, removed behind the block.

    # Parameters

    path : `Path`
        The folder or ZIP.
    with_weights : `bool`, optional (default = `True`)
        Whether the large files are wanted too.

    # Returns

    `Iterator[Path]`
        A folder.

    # Raises

    `ValueError`
        If the ZIP is damaged, has entries that would lie outside a folder, or not one biLM.
    """
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="elmo_plugin-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, path, Path(folder), with_weights)
        except (*DAMAGE, OSError) as error:
            # bzip2's have no number, and EINVAL is of a place before the file; not a full disk's.
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            raise ValueError(f"{path} is not a whole ZIP, {EXPECTED}: {error}") from error
        with _named(path, Path(folder)):
            yield Path(folder)


def options_in(folder: Path) -> ElmoOptions:
    """
    # Parameters

    folder : `Path`
        From `unpacked`.

    # Raises

    `FileNotFoundError`, `ValueError`
        If they are not there, or not a biLM's.
    """
    if is_many_langs(folder):
        return many_langs_options(folder)
    if not (folder / OPTIONS).is_file():
        raise FileNotFoundError(f"{folder} has {_content(folder)}, {EXPECTED}")
    return read_options(folder / OPTIONS)


def weights_in(folder: Path) -> Path:
    """
    # Parameters

    folder : `Path`
        From `unpacked`, and no ELMoForManyLangs model.

    # Raises

    `FileNotFoundError`
        If they are not there.
    `ValueError`
        If it is not clear which they are.
    """
    found = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if not found:
        raise FileNotFoundError(f"{folder} has {_content(folder)}, {EXPECTED}")
    if len(found) > 1:
        raise ValueError(f"{folder} has both {' and '.join(WEIGHTS)}, expected one of them")
    return found[0]


def _content(folder: Path) -> str:
    names = sorted(one.name for one in folder.iterdir())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (", ".join(names[:8]) + more) or "no files"


@contextmanager
def _named(path: Path, folder: Path) -> Iterator[None]:
    """Errors name the ZIP, not the folder that nobody has seen."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        if str(folder) not in str(error):
            raise
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(str(error).replace(str(folder), str(path))) from error


def _unpack(archive: zipfile.ZipFile, path: Path, folder: Path, with_weights: bool) -> None:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"{path} has {len(entries)} entries, {EXPECTED}")
    for entry in entries:
        if _is_outside(entry.filename):
            raise ValueError(
                f"{path} has the entry {quoted(entry.filename)}, which would lie outside a folder, "
                "and was not read"
            )
    places = {
        PurePosixPath(entry.filename).parent
        for entry in entries
        if PurePosixPath(entry.filename).name in (OPTIONS, CONFIG)
    }
    if len(places) != 1:
        names = ", ".join(entry.filename for entry in entries[:8])
        raise ValueError(f"{path} has {len(places)} biLMs ({quoted(names)}), {EXPECTED}")
    wanted = {**SMALL_FILES, **LARGE_FILES} if with_weights else SMALL_FILES
    for entry in entries:
        name = PurePosixPath(entry.filename)
        if name.parent not in places:
            continue
        is_long = len(name.name.encode("utf-8", "surrogateescape")) > MOST_NAME
        if name.suffix not in wanted:
            # There, so that what a folder holds is known, but empty.
            if not is_long:
                (folder / name.name).touch()
            continue
        if is_long:
            raise ValueError(
                f"{path}: the name of the entry {quoted(entry.filename)} is too long for a file, "
                f"expected at most {MOST_NAME} bytes"
            )
        if entry.flag_bits & 1:
            raise ValueError(f"{path}: {name.name} is encrypted, expected a plain ZIP")
        if entry.file_size > wanted[name.suffix]:
            raise ValueError(
                f"{path}: {name.name} has {entry.file_size} bytes, expected at most "
                f"{wanted[name.suffix]}"
            )
        if (folder / name.name).exists():
            raise ValueError(f"{path} has {name.name} twice, expected it once")
        # No more than the ZIP says is read of an entry.
        with archive.open(entry) as packed, (folder / name.name).open("wb") as file:
            shutil.copyfileobj(packed, file)


def _is_outside(name: str) -> bool:
    """Absolute by any system's rules, or with a step up."""
    windows = PureWindowsPath(name)
    return bool(
        windows.drive or windows.root or ".." in windows.parts or PurePosixPath(name).is_absolute()
    )
