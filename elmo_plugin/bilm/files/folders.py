"""
Find a biLM's files in a folder or in a ZIP file.

The NLPL repository (http://vectors.nlpl.eu/repository), simple_elmo and ELMoForManyLangs publish
biLMs in this form.
"""

import errno
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
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
from elmo_plugin.bilm.files.options import num_parameters, read_options
from elmo_plugin.bilm.files.safetensors_file import SAFETENSORS_FILE
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.model.options import ElmoOptions

try:
    from lzma import LZMAError
except ImportError:  # some builds of Python lack lzma
    LZMAError = zlib.error  # type: ignore[misc, assignment]

OPTIONS = "options.json"
# Words and softmax with which a biLM was trained.
VOCABULARY, SOFTMAX = "vocabulary.txt", "softmax.hdf5"
# Names of weight files: of NLPL and simple_elmo, of exported biLMs, and of transformers.
WEIGHTS = ("model.hdf5", "weights.hdf5", SAFETENSORS_FILE)
EXPECTED = (
    f"expected a biLM's files: {OPTIONS} and {WEIGHTS[0]} or {WEIGHTS[1]} (bilm-tf, NLPL, "
    f"simple_elmo), {CONFIG} and {SAFETENSORS_FILE} (transformers), or {', '.join(FILES)} "
    "(ELMoForManyLangs)"
)
# Limits in bytes on what a ZIP may hold: one JSON file, all JSON files together, one dictionary. A
# weight file may have 8 bytes per parameter, and MOST_OVERHEAD more.
MOST_JSON, MOST_JSON_IN_ALL, MOST_DICTIONARY, MOST_OVERHEAD = 1 << 20, 1 << 24, 1 << 28, 1 << 22
# Exceptions that a damaged ZIP raises, besides OSError.
DAMAGE = (zipfile.BadZipFile, EOFError, zlib.error, LZMAError, NotImplementedError)
MOST_ENTRIES = 1 << 12
# Longest name of a file in most file systems, in bytes.
MOST_NAME = 255


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder or a ZIP file."""
    if not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


@contextmanager
def unpacked(path: Path, with_weights: bool = True, with_softmax: bool = False) -> Iterator[Path]:
    """
    Context manager that yields a folder with a biLM's files: `path` itself, or a temporary folder
    if `path` is a ZIP file.

    Without `with_weights`, the weights are not unpacked, nor the softmax without `with_softmax`.
    Raises a `ValueError` if the ZIP file is damaged, does not hold exactly one biLM, has a path out
    of the folder, or a file above the size limits.
    """
    if path.is_dir():
        yield path
        return
    with (
        tempfile.TemporaryDirectory(prefix="elmo_plugin-") as name,
        _errors_name(path, Path(name)),
    ):
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, path, folder, with_weights, with_softmax)
        except (*DAMAGE, OSError) as error:
            # In a damaged ZIP, bzip2 raises an OSError without errno, and a seek to a negative
            # position raises EINVAL. Other OSErrors, such as a full disk, are not damage.
            is_damage = getattr(error, "errno", None) in (None, errno.EINVAL)
            if not is_damage or isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"{path} is not a whole ZIP, {EXPECTED}: {error}") from error
        yield folder


def options_in(folder: Path) -> ElmoOptions:
    """
    Read the options of the biLM in a folder.

    Raise a `FileNotFoundError` if the folder has no options, and a `ValueError` if they are
    unusable.
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
    Return the path of the weight file in a folder of bilm-tf's format.

    Raise a `FileNotFoundError` if there is none, and a `ValueError` if there are two.
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


@contextmanager
def _errors_name(path: Path, folder: Path) -> Iterator[None]:
    """
    Context manager that replaces the temporary `folder` in error messages by `path`, the ZIP file
    that was unpacked there.
    """
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        if str(folder) not in str(error):
            raise
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(str(error).replace(str(folder), str(path))) from error


def _unpack(
    archive: zipfile.ZipFile, path: Path, folder: Path, with_weights: bool, with_softmax: bool
) -> None:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"{path} has {len(entries)} entries, {EXPECTED}")
    for entry in entries:
        if _is_outside(entry.filename):
            raise ValueError(
                f"{path} has the entry {quoted(entry.filename)}, which would lie outside a folder, "
                "and was not read"
            )
    parents = {
        PurePosixPath(entry.filename).parent
        for entry in entries
        if PurePosixPath(entry.filename).name in (OPTIONS, CONFIG)
    }
    if len(parents) != 1:
        names = ", ".join(entry.filename for entry in entries[:8])
        raise ValueError(f"{path} has {len(parents)} biLMs ({quoted(names)}), {EXPECTED}")
    inside = [entry for entry in entries if PurePosixPath(entry.filename).parent in parents]
    small = {entry: limit for entry in inside if (limit := _limit_of_small_file(entry))}
    json_bytes = sum(entry.file_size for entry in small if entry.filename.endswith(".json"))
    if json_bytes > MOST_JSON_IN_ALL:
        raise ValueError(
            f"{path} has {json_bytes} bytes of JSON files, expected at most {MOST_JSON_IN_ALL}"
        )
    for entry in inside:
        name = PurePosixPath(entry.filename).name
        if entry in small:
            _unpack_entry(archive, entry, path, folder, small[entry])
        elif len(name.encode("utf-8", "surrogateescape")) <= MOST_NAME:
            (folder / name).touch()  # an empty file, so that error messages can list its name
    limits: dict[str, int] = {}
    options = options_in(folder) if with_weights else None
    if options is not None:
        weights = (TOKENS, LSTM) if is_many_langs(folder) else WEIGHTS
        limits = dict.fromkeys(weights, 8 * num_parameters(options) + MOST_OVERHEAD)
    if options is not None and with_softmax and (folder / VOCABULARY).is_file():
        num_words = (folder / VOCABULARY).read_bytes().count(b"\n") + 1
        limits[SOFTMAX] = 8 * num_words * (options.projection_dim + 1) + MOST_OVERHEAD
    for entry in inside:
        if (name := PurePosixPath(entry.filename).name) in limits:
            _unpack_entry(archive, entry, path, folder, limits[name])


def _limit_of_small_file(entry: zipfile.ZipInfo) -> int:
    """
    Return the size limit, in bytes, of a JSON file or a file of words or characters; 0 for other
    files. The limit of a weight file is known only once the options have been unpacked.
    """
    name = PurePosixPath(entry.filename)
    if name.name in (CHARACTERS, WORDS, VOCABULARY):
        return MOST_DICTIONARY
    return MOST_JSON if name.suffix == ".json" else 0


def _unpack_entry(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, folder: Path, limit: int
) -> None:
    name = PurePosixPath(entry.filename).name
    if len(name.encode("utf-8", "surrogateescape")) > MOST_NAME:
        raise ValueError(
            f"{path}: the name of the entry {quoted(entry.filename)} is too long for a file, "
            f"expected at most {MOST_NAME} bytes"
        )
    if entry.flag_bits & 1:
        raise ValueError(f"{path}: {name} is encrypted, expected a plain ZIP")
    if entry.file_size > limit:
        raise ValueError(f"{path}: {name} has {entry.file_size} bytes, expected at most {limit}")
    target = folder / name
    if target.exists() and target.stat().st_size:
        raise ValueError(f"{path} has {name} twice, expected it once")
    # `zipfile` stops after `file_size` bytes, so the limit holds even if the ZIP lies about it.
    with archive.open(entry) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)


def _is_outside(name: str) -> bool:
    """Return whether a path is absolute on any operating system, or contains `..`."""
    windows = PureWindowsPath(name)
    return bool(
        windows.drive or windows.root or ".." in windows.parts or PurePosixPath(name).is_absolute()
    )
