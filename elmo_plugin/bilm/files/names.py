"""Where a biLM's files are: names, paths and URLs to local files."""

import errno
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.files.fetch import RELEASED, fetch
from elmo_plugin.bilm.files.folders import is_folder, options_in, unpacked
from elmo_plugin.bilm.files.options import parse_options, read_options
from elmo_plugin.bilm.model.options import ElmoOptions

OptionsSource = str | Path | dict[str, Any]

_PRETRAINED = Path(__file__).parents[2] / "pretrained"
_RELEASED_FOLDERS = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "5.5B": "2x4096_512_2048cnn_2xhighway_5.5B",
}

# name -> (options, weights); all but `embedded` are downloaded once and kept by `cached_path`.
NAMED_BILMS = {
    "embedded": (str(_PRETRAINED / "options.json"), str(_PRETRAINED / "weights.hdf5")),
    **{
        name: tuple(
            f"{RELEASED[0]}{folder}/elmo_{folder}_{file}"
            for file in ("options.json", "weights.hdf5")
        )
        for name, folder in _RELEASED_FOLDERS.items()
    },
}
# What names both of a biLM's files.
WHOLE = f"one of the names {', '.join(NAMED_BILMS)}, a folder or a ZIP"


def find_options(
    options_file: OptionsSource | None, weight_file: str | Path | None = None
) -> ElmoOptions:
    """
    The options of a biLM.

    # Parameters

    options_file : `OptionsSource | None`
        A name of `NAMED_BILMS`, a path, a URL, or the options themselves. A path or URL is of an
        `options.json`, or of a folder or ZIP that holds it all (`folders.py`).
    weight_file : `str | Path | None`, optional (default = `None`)
        Its name, folder or ZIP, where only the weights are named.

    # Returns

    `ElmoOptions`

    # Raises

    `FileNotFoundError`
        If there is no such file, or a URL cannot be fetched; the text says how to give a local
        file.
    `ValueError`
        If the file does not hold a biLM's options.
    """
    if isinstance(options_file, dict):
        return parse_options(options_file)
    options_file, weight_file = _named(options_file), _named(weight_file)
    if options_file is None:
        if not _is_whole(weight_file):
            raise ValueError(
                f"weight_file {str(weight_file)!r} was given without options_file; "
                f"expected both, or {WHOLE}"
            )
        options_file = weight_file
    location = NAMED_BILMS.get(str(options_file), (str(options_file), ""))[0]
    path = local_file(location, "options_file")
    if not is_folder(path):
        return read_options(path)
    with unpacked(path, with_weights=False) as folder:
        return options_in(folder)


def find_weights(options_file: OptionsSource | None, weight_file: str | Path | None) -> Path | None:
    """
    The weight file of a biLM on this machine.

    # Parameters

    options_file, weight_file
        As in `find_options`.

    # Returns

    `Path | None`
        A weight file, or a folder or ZIP; `None` where only inlined options are given: an archive
        will bring the weights.
    """
    if not isinstance(options_file, dict):
        options_file = _named(options_file)
    weight_file = _named(weight_file)
    if weight_file is None:
        if isinstance(options_file, dict):
            return None
        if not _is_whole(options_file):
            raise ValueError(
                f"options_file {str(options_file)!r} was given without weight_file; "
                f"expected both, or {WHOLE}"
            )
        weight_file = options_file
    location = NAMED_BILMS.get(str(weight_file), ("", str(weight_file)))[1]
    return local_file(location, "weight_file")


def _named(source: str | Path | None) -> str | Path | None:
    """The name of a released biLM for a URL of one of its files, at any of the bucket's names."""
    for bucket in RELEASED:
        if str(source).startswith(bucket):
            url = RELEASED[0] + str(source).removeprefix(bucket)
            return next((name for name, urls in NAMED_BILMS.items() if url in urls), source)
    return source


def _is_whole(source: str | Path | None) -> bool:
    """Whether it names options and weights in one."""
    named = str(source)
    if named in NAMED_BILMS:
        return True
    if "://" in named:
        return named.endswith(".zip")
    path = _existing(named)
    return path is not None and is_folder(path)


def _existing(location: str) -> Path | None:
    """The file or folder of this path, if there is one."""
    try:
        path = Path(location).expanduser()
        return path if path.is_file() or path.is_dir() else None
    except RuntimeError:  # a home of nobody
        return None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return None


def local_file(location: str, argument: str) -> Path:
    """
    A path as it is, a URL by `fetch`.

    # Parameters

    location : `str`
        Path or URL.
    argument : `str`
        The argument that gave it, for errors.

    # Raises

    `FileNotFoundError`
        If it cannot be had.
    """
    advice = (
        f"give {argument} the path of a local file, or the name 'embedded' for the biLM that comes "
        "with this package"
    )
    if "://" not in location:
        path = _existing(location)
        if path is None:
            raise FileNotFoundError(
                f"{argument}: there is no file {location}, and the names are "
                f"{', '.join(NAMED_BILMS)}; {advice}"
            )
        return path
    try:
        return fetch(location, argument)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{argument}: {error}; {advice}") from error
