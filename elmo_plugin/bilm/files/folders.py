"""
Find a biLM's files in a folder or a ZIP, as the NLPL repository
(http://vectors.nlpl.eu/repository), simple_elmo and ELMoForManyLangs publish them.
"""

import contextlib
import errno
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from elmo_plugin.bilm.files.many_langs import (
    CHARACTERS,
    CONFIG,
    FILES,
    LSTM,
    TOKENS,
    WORDS,
    is_many_langs,
    many_langs_options,
)
from elmo_plugin.bilm.files.options import read_options
from elmo_plugin.bilm.files.safetensors_file import SAFETENSORS_FILE
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.model.options import ElmoOptions

try:
    from lzma import LZMAError
except ImportError:  # some builds of Python lack lzma
    LZMAError = zlib.error  # type: ignore[misc, assignment]

OPTIONS = "options.json"
# Words with which a biLM was trained.
VOCABULARY = "vocabulary.txt"
# Names of weight files: of NLPL and simple_elmo, of exported biLMs, and of transformers.
WEIGHTS = ("model.hdf5", "weights.hdf5", SAFETENSORS_FILE)
MODEL = (*WEIGHTS, TOKENS, LSTM)
EXPECTED = (
    f"expected a biLM's files: {OPTIONS} and {WEIGHTS[0]} or {WEIGHTS[1]} (bilm-tf, NLPL, "
    f"simple_elmo), {CONFIG} and {SAFETENSORS_FILE} (transformers), or {', '.join(FILES)} "
    "(ELMoForManyLangs)"
)
# A ZIP may unpack to this many times its size, and these bytes more. Weights do not compress well;
# a file that does was made to fill the disk.
MOST_RATIO, MOST_OVERHEAD = 100, 1 << 22
# Exceptions that a damaged ZIP raises, besides OSError.
DAMAGE = (
    zipfile.BadZipFile, EOFError, zlib.error, LZMAError, NotImplementedError, UnicodeDecodeError,
)  # fmt: skip
MOST_ENTRIES = 1 << 12


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder or a ZIP file."""
    if not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


@contextmanager
def unpacked(path: Path, large: Iterable[str] = MODEL) -> Iterator[Path]:
    """
    Context manager that yields a folder with a biLM's files: `path`, or a temporary one for a ZIP.

    Of the files that may be large, those in `large` are unpacked, by default the weights. Raise a
    `ValueError` if the ZIP is damaged or does not hold exactly one biLM. The same if an entry leads
    out of the folder, or the ZIP unpacks to far more than its size.
    """
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="elmo_plugin-") as name:
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, path, folder, {CHARACTERS, WORDS, VOCABULARY, *large})
        except (*DAMAGE, OSError) as error:
            # In a damaged ZIP, bzip2 raises an OSError without errno, and a seek to a negative
            # position raises EINVAL. Other OSErrors, such as a full disk, are not damage.
            damage = (None, errno.EINVAL, errno.ENAMETOOLONG)
            if getattr(error, "errno", None) not in damage:
                raise
            raise ValueError(f"{path} is not a whole ZIP, {EXPECTED}: {error}") from error
        try:
            yield folder
        except (ValueError, FileNotFoundError) as error:  # name the ZIP, not the temporary folder
            if name not in str(error):
                raise
            kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
            raise kind(str(error).replace(name, str(path))) from error


def options_in(folder: Path) -> ElmoOptions:
    """
    Read the options of the biLM in a folder. Raise a `FileNotFoundError` if it has none, and a
    `ValueError` if they are unusable.
    """
    if is_many_langs(folder):
        return many_langs_options(folder)
    name = CONFIG if (folder / SAFETENSORS_FILE).is_file() else OPTIONS
    for path in (folder / OPTIONS, folder / name):
        if path.is_file():
            return read_options(path)
    raise FileNotFoundError(f"{folder} has {_content(folder)}, {EXPECTED}")


def weights_in(folder: Path) -> Path:
    """
    Return the path of the weight file in a folder of bilm-tf's format. Raise a `FileNotFoundError`
    if there is none, and a `ValueError` if there are two.
    """
    found = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if not found:
        raise FileNotFoundError(f"{folder} has {_content(folder)}, {EXPECTED}")
    if len(found) > 1:
        names = " and ".join(one.name for one in found)
        raise ValueError(f"{folder} has both {names}, expected one of them")
    return found[0]


def _content(folder: Path) -> str:
    names = sorted(one.name for one in folder.iterdir())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (", ".join(names[:8]) + more) or "no files"


def _unpack(archive: zipfile.ZipFile, path: Path, folder: Path, wanted: set[str]) -> None:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"{path} has {len(entries)} entries, {EXPECTED}")
    for entry in entries:
        if _is_outside(entry.filename):
            raise ValueError(
                f"{path} has the entry {quoted(entry.filename)}, which would lie outside a folder, "
                "and was not read"
            )
    names = [PurePosixPath(entry.filename) for entry in entries]
    parents = {name.parent for name in names if name.name in (OPTIONS, CONFIG)}
    if len(parents) != 1:
        shown = ", ".join(entry.filename for entry in entries[:8])
        raise ValueError(f"{path} has {len(parents)} biLMs ({quoted(shown)}), {EXPECTED}")
    most = MOST_OVERHEAD + MOST_RATIO * path.stat().st_size
    for entry, name in zip(entries, names):
        target = folder / name.name
        if name.parent not in parents:
            continue
        if name.name not in wanted and name.suffix != ".json":
            with contextlib.suppress(OSError):
                target.touch()  # an empty file, so that error messages can list its name
            continue
        if entry.flag_bits & 1:
            raise ValueError(f"{path}: {name.name} is encrypted, expected a plain ZIP")
        if target.exists():
            raise ValueError(f"{path} has {name.name} twice, expected it once")
        most -= entry.file_size
        if most < 0:
            raise ValueError(
                f"{path}: {name.name} has {entry.file_size} bytes, {-most} more than a ZIP of this "
                "size may unpack to"
            )
        # `zipfile` stops after `file_size` bytes, so the limit holds even if the ZIP lies about it.
        with archive.open(entry) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file)


def _is_outside(name: str) -> bool:
    """Return whether a path is absolute on any operating system, or contains `..`."""
    windows = PureWindowsPath(name)
    return bool(
        windows.drive or windows.root or ".." in windows.parts or PurePosixPath(name).is_absolute()
    )
