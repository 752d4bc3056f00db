"""Where a biLM's files are: names, paths and URLs to local files."""

from pathlib import Path
from typing import Any

from elmo_plugin.bilm.files.fetch import RELEASED, fetch
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


def find_options(
    options_file: OptionsSource | None, weight_file: str | Path | None = None
) -> ElmoOptions:
    """
    The options of a biLM.

    # Parameters

    options_file : `OptionsSource | None`
        A name of `NAMED_BILMS`, a path, a URL, or the options themselves.
    weight_file : `str | Path | None`, optional (default = `None`)
        Its name, where only the weights are named.

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
    if options_file is None:
        if str(weight_file) not in NAMED_BILMS:
            raise ValueError(
                f"weight_file {str(weight_file)!r} was given without options_file; "
                f"expected both, or one of the names {', '.join(NAMED_BILMS)}"
            )
        options_file = weight_file
    location = NAMED_BILMS.get(str(options_file), (str(options_file), ""))[0]
    return read_options(local_file(location, "options_file"))


def find_weights(options_file: OptionsSource | None, weight_file: str | Path | None) -> Path | None:
    """
    The weight file of a biLM on this machine.

    # Parameters

    options_file, weight_file
        As in `find_options`.

    # Returns

    `Path | None`
        `None` where only inlined options are given: an archive will bring the weights.
    """
    if weight_file is None:
        if isinstance(options_file, dict):
            return None
        if str(options_file) not in NAMED_BILMS:
            raise ValueError(
                f"options_file {str(options_file)!r} was given without weight_file; "
                f"expected both, or one of the names {', '.join(NAMED_BILMS)}"
            )
        weight_file = options_file
    location = NAMED_BILMS.get(str(weight_file), ("", str(weight_file)))[1]
    return local_file(location, "weight_file")


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
        path = Path(location).expanduser()
        if not path.is_file():
            raise FileNotFoundError(
                f"{argument}: there is no file {location}, and the names are "
                f"{', '.join(NAMED_BILMS)}; {advice}"
            )
        return path
    try:
        return fetch(location, argument)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{argument}: {error}; {advice}") from error
