"""Resolve names, paths and URLs of biLMs to local files."""

import errno
import os
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

# Options and weights (paths or URLs) of each named biLM. `cached_path` downloads a URL only once.
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
# Description, for error messages, of arguments that give both options and weights.
BOTH = f"one of the names {', '.join(NAMED_BILMS)}, a folder or a ZIP"


def find_options(
    options_file: OptionsSource | None, weight_file: str | Path | None = None
) -> ElmoOptions:
    """
    Read the options of a biLM.

    `options_file` is a name of `NAMED_BILMS`; the path or URL of an `options.json`, a folder or a
    ZIP; or the parsed content of an `options.json`. Without it, `weight_file` is a name, a folder
    or a ZIP.

    Raise a `FileNotFoundError` if there is no such file or it cannot be downloaded, and a
    `ValueError` if it does not hold a biLM's options.
    """
    options_file, weight_file = _named(options_file, weight_file)
    if isinstance(options_file, dict):
        return parse_options(options_file)
    path = _located("options_file", options_file, "weight_file", weight_file)
    if not is_folder(path):
        return read_options(path)
    with unpacked(path, large=()) as folder:
        return options_in(folder)


def find_weights(options_file: OptionsSource | None, weight_file: str | Path | None) -> Path | None:
    """
    Return the local path of a biLM's weight file, folder or ZIP; `None` for a dict of options
    without `weight_file`. Arguments and errors are those of `find_options`.
    """
    options_file, weight_file = _named(options_file, weight_file)
    if weight_file is None and isinstance(options_file, dict):
        return None
    return _located("weight_file", weight_file, "options_file", options_file)


def _named(options_file: Any, weight_file: Any) -> tuple[Any, Any]:
    """Check the arguments' types. Replace URLs of released files by the names of their biLMs."""
    found = []
    for argument, value in (("options_file", options_file), ("weight_file", weight_file)):
        is_dict = argument == "options_file" and isinstance(value, dict)
        if not is_dict and value is not None and not isinstance(value, (str, os.PathLike)):
            raise ValueError(f"{argument} is {value!r}, expected a path, a URL, or {BOTH}")
        for bucket in RELEASED:
            if str(value).startswith(bucket):
                url = RELEASED[0] + str(value).removeprefix(bucket)
                value = next((name for name, urls in NAMED_BILMS.items() if url in urls), value)
        found.append(value)
    return found[0], found[1]


def _located(argument: str, value: Any, other_argument: str, other: Any) -> Path:
    """
    Return the local path of the file that an argument names, downloaded if needed. If the argument
    is not given, take the matching file of the biLM that the other argument names.
    """
    if value is None:
        if not _is_options_and_weights(other):
            raise ValueError(
                f"{other_argument} {str(other)!r} was given without {argument}; expected both, or "
                f"{BOTH}"
            )
        value = other
    location = NAMED_BILMS.get(str(value), (str(value),) * 2)[argument == "weight_file"]
    advice = (
        f"give {argument} the path of a local file, or the name 'embedded' for the biLM that comes "
        "with this package"
    )
    if "://" in location:
        try:
            return fetch(location, argument)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{argument}: {error}; {advice}") from error
    path = _existing(location)
    if path is None:
        raise FileNotFoundError(
            f"{argument}: there is no file {location}, and the names are {', '.join(NAMED_BILMS)}; "
            f"{advice}"
        )
    return path


def _is_options_and_weights(source: str | Path | None) -> bool:
    """Return whether a name, path or URL gives both options and weights."""
    named = str(source)
    if named in NAMED_BILMS:
        return True
    if "://" in named:
        return named.endswith(".zip")
    path = _existing(named)
    return path is not None and is_folder(path)


def _existing(location: str) -> Path | None:
    """Return the path of `location` if it is an existing file or folder, otherwise `None`."""
    try:
        path = Path(location).expanduser()
        return path if path.is_file() or path.is_dir() else None
    except RuntimeError:  # `~name` of an unknown user
        return None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return None
