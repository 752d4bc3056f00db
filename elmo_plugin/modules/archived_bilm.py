"""
What an archive needs of its biLM beside the weights, which are in it: the options.

A config may name them by a file, which need not be where the archive is loaded. So each archive
gets a file of our own with the options of every biLM that its config names, and a model that is
being loaded takes them from there. Weight files are not read then, and cache directories not made:
those are the training run's.
"""

import json
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import options_dict

logger = logging.getLogger(__name__)

OPTIONS_FILE = "elmo_options.json"
DEFAULT = "original"

_directory: ContextVar[Optional[Path]] = ContextVar("directory", default=None)


@contextmanager
def loading_from(directory: Union[str, Path]) -> Iterator[None]:
    """
    # Parameters

    directory : `Union[str, Path]`
        An archive's files, or a run's, while a trained model is made of them.
    """
    token = _directory.set(Path(directory))
    try:
        yield
    finally:
        _directory.reset(token)


def is_loading() -> bool:
    """Whether a model is being made whose weights come from an archive."""
    return _directory.get() is not None


def options_in_archive(
    options_file: Optional[str], weight_file: Optional[str] = None
) -> Dict[str, Any]:
    """
    # Parameters

    options_file, weight_file : `Optional[str]`
        What the archive's config says.

    # Returns

    `Dict[str, Any]`
        The options: those in the archive, else those of the file.

    # Raises

    `ConfigurationError`
        If they are in neither; the text says how to mend the archive.
    """
    directory = _directory.get()
    archived = directory / OPTIONS_FILE if directory is not None else None
    if archived is not None and archived.is_file():
        for entry in json.loads(archived.read_text(encoding="utf-8")):
            if (entry["options_file"], entry["weight_file"]) == (options_file, weight_file):
                return entry["options"]
    try:
        return _found(options_file, weight_file)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigurationError(
            f"the archive's config names a biLM by options_file {options_file!r}, whose options "
            f"are neither in the archive nor here ({error}). The weights are in the archive; bring "
            "the options.json that it was trained with, and say where it is: --overrides "
            '\'{"model.text_field_embedder.token_embedders.elmo.options_file": "options.json"}\''
        ) from error


def write_options(directory: Union[str, Path]) -> List[str]:
    """
    Writes `OPTIONS_FILE` for an archive that is about to be made.

    # Parameters

    directory : `Union[str, Path]`
        The run's, with `config.json`.

    # Returns

    `List[str]`
        The name of the file, or nothing where the config names no biLM by a file.
    """
    directory = Path(directory)
    entries = []
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    for part in _parts(config.get("model")):
        names_files = {"options_file", "weight_file"} & part.keys()
        if part.get("type") == "bilm_language_model":
            named, weight_file = part.get("options"), None
        elif "options" not in part and (names_files or part.get("type") == "elmo_token_embedder"):
            named, weight_file = part.get("options_file"), part.get("weight_file")
        else:
            continue
        if isinstance(named, dict):
            continue
        try:
            options = _found(named, weight_file)
        except (FileNotFoundError, ValueError) as error:
            logger.warning("The archive will not have the options of its biLM: %s", error)
            continue
        entries.append({"options_file": named, "weight_file": weight_file, "options": options})
    if not entries:
        return []
    (directory / OPTIONS_FILE).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    return [OPTIONS_FILE]


def _found(options_file: Optional[str], weight_file: Optional[str]) -> Dict[str, Any]:
    if options_file is None and weight_file is None:
        options_file = DEFAULT
    return options_dict(find_options(options_file, weight_file))


def _parts(config: Any) -> Iterator[Dict[str, Any]]:
    if isinstance(config, dict):
        yield config
        for part in config.values():
            yield from _parts(part)
    elif isinstance(config, list):
        for part in config:
            yield from _parts(part)
