"""`options.json` from disk."""

import json
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.model.options import ElmoOptions

# The released files have some 340.
MOST_BYTES = 1 << 20


def read_options(path: str | Path) -> ElmoOptions:
    """
    # Parameters

    path : `str | Path`
        An `options.json`, UTF-8.

    # Returns

    `ElmoOptions`

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is not JSON, or not a biLM's options; the text names the file.
    """
    if not Path(path).is_file():  # a FIFO would wait for ever
        raise FileNotFoundError(f"there is no options file {path}")
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES} bytes, expected a biLM's options")
    try:
        options = json.loads(content.decode("utf-8"), object_pairs_hook=_once)
    # Also numbers of thousands of digits; brackets in brackets without an end.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a JSON file: {str(error)[:200]}") from error
    return ElmoOptions.from_dict(options, source=str(path))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a key come twice, and readers differ in which they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:50]!r} comes twice, expected it once")
    return found
