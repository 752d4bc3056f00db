"""
Store a biLM's options in the model archive, so that the archive loads on any machine.

The path of `options.json` in the config may not exist on the machine that loads the archive. So
each archive gets a file `elmo_options.json` with the options of every biLM in its config. A model
loaded from the archive takes the options from this file, and the weights from the archive.
"""

import json
import logging
import tarfile
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path

from elmo_plugin.bilm.files.archive_member import read_member
from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import options_dict

if TYPE_CHECKING:  # imported while AllenNLP imports its own `Elmo`, before its models
    from allennlp.models import Model

logger = logging.getLogger(__name__)

OPTIONS_FILE = "elmo_options.json"
DEFAULT = "original"

_directory: ContextVar[Optional[Path]] = ContextVar("directory", default=None)


@contextmanager
def loading_from(directory: Union[str, Path]) -> Iterator[None]:
    """Context manager: models get the biLM options that an unpacked archive or a run stored."""
    token = _directory.set(Path(directory))
    try:
        yield
    finally:
        _directory.reset(token)


def is_loading() -> bool:
    """Return whether `loading_from` is active. If so, weights come from an archive."""
    return _directory.get() is not None


def options_in_archive(
    options_file: Optional[str], weight_file: Optional[str] = None
) -> Dict[str, Any]:
    """
    Return the biLM's options from the archive's `elmo_options.json`. Its keys are the
    paths `options_file` and `weight_file` of the archive's config. If there is no entry for these
    paths, read the options from the files that the paths name. Raise a `ConfigurationError` if
    `elmo_options.json` is malformed, or if these files cannot be read either.
    """
    directory = _directory.get()
    if directory is not None and (archived := directory / OPTIONS_FILE).is_file():
        try:
            found = {
                (entry["options_file"], entry["weight_file"]): entry["options"]
                for entry in json.loads(archived.read_text(encoding="utf-8"))
            }
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigurationError(
                f"its {OPTIONS_FILE} cannot be read ({error!r}), expected a list of objects with "
                "options_file, weight_file and options"
            ) from error
        if (options_file, weight_file) in found:
            return found[options_file, weight_file]
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
    Write `elmo_options.json` to the serialization directory before AllenNLP makes the archive.
    Return the names of the files written: this one, or none if there are no options.
    """
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    try:
        model, entries = resolve_model(config)
    except (OSError, KeyError, ValueError, tarfile.TarError):
        return []  # `archived_config` logs a warning about this error
    known = {(entry["options_file"], entry["weight_file"]) for entry in entries}
    for part in _parts(model):
        if part.get("options") is not None or not _names_a_bilm(part, model):
            continue
        named, weight_file = part.get("options_file"), part.get("weight_file")
        if isinstance(named, dict) or (named, weight_file) in known:
            continue
        try:
            # AllenNLP drops `pretrained_file` when it loads an archive, so the entry lacks it.
            options = _found(named, weight_file or part.get("pretrained_file"))
        except (FileNotFoundError, ValueError) as error:
            logger.warning("The archive will not have the options of its biLM: %s", error)
            continue
        entries.append({"options_file": named, "weight_file": weight_file, "options": options})
    if not entries:
        return []
    (directory / OPTIONS_FILE).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    return [OPTIONS_FILE]


def _names_a_bilm(part: Dict[str, Any], model: Any) -> bool:
    """Return whether a block of the config names a biLM, if only by leaving it to the default."""
    is_elmo = part.get("type") == "elmo_token_embedder" or part is model.get("elmo")
    return is_elmo or not part.keys().isdisjoint(("options_file", "weight_file"))


def resolve_model(config: Dict[str, Any]) -> Tuple[Any, List[Dict[str, Any]]]:
    """
    Return the `model` of a config, and the entries of `elmo_options.json` that it needs. For a
    model of type `from_archive`, return the model of the archive that it names, and add that
    archive's entries.
    """
    model: Any = config.get("model")
    options: List[Dict[str, Any]] = []
    while is_from_archive(model):
        parent = Path(cached_path(model["archive_file"]))
        model = _in_archive(parent, "config.json", {}).get("model")
        if model is None:
            raise ValueError(f"{parent} has no config.json with a model in it")
        options += _in_archive(parent, OPTIONS_FILE, [])
    return model, options


def is_from_archive(model: Any) -> bool:
    """Return whether a config's `model` has the type `from_archive`."""
    return isinstance(model, dict) and model.get("type") == "from_archive"


def _in_archive(archive: Path, name: str, default: Any) -> Any:
    """Return the parsed JSON file `name` of an archive or folder; `default` if it is missing."""
    if archive.is_dir():
        path = archive / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default
    content = read_member(archive, name)
    return default if content is None else json.loads(content)


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


# --- runs whose model has the type `from_archive` -------------------------------------------------


def save_extended_vocabulary(model: "Model", directory: str) -> None:
    """
    Save the vocabulary of a `from_archive` model for the run's own archive: that of the parent
    archive, extended by the words of the new data. AllenNLP itself would save one of the new data
    alone, in which words have other ids.
    """
    path = Path(directory, "config.json")
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if is_from_archive(config.get("model")):
        model.vocab.save_to_files(str(Path(directory, "vocabulary")))


def archived_config(path: Union[str, Path]) -> Optional[bytes]:
    """
    Return the config to store in a run's archive, as JSON. Return `None` if the run's config file,
    `path`, can be stored unchanged.

    A model of the type `from_archive` starts from another archive, its parent. In the returned
    config, the config of the parent's model replaces it. Loading the run's archive then needs no
    parent, and AllenNLP finds the model's default predictor. With `enable_default_callbacks: false`
    the config stays, and the parent is needed.
    """
    config: Dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if not is_from_archive(config.get("model")):
        return None
    if not (config.get("trainer") or {}).get("enable_default_callbacks", True):
        return None  # then only the parent has the model's vocabulary
    try:
        config["model"], _ = resolve_model(config)
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        logger.warning("The archive cannot be loaded without its parent archive: %s", error)
        return None
    return json.dumps(config, indent=2).encode()


def remember_labels(model: "Model") -> None:
    """Set `model.num_trained_labels`, a dictionary from each label namespace to its size."""
    embedded = {
        getattr(module, "_vocab_namespace", None)
        for module in model.modules()
        if hasattr(module, "extend_vocab")
    }
    model.num_trained_labels = {  # type: ignore[assignment]
        namespace: model.vocab.get_vocab_size(namespace)
        for namespace in model.vocab.get_namespaces()
        if namespace not in embedded
        and model.vocab._oov_token not in model.vocab.get_token_to_index_vocabulary(namespace)
    }


def check_no_new_labels(model: "Model") -> None:
    """
    Raise a `ConfigurationError` if a loaded model's vocabulary has more labels than
    `remember_labels` stored, because the output layer has no rows for the new ones.
    """
    trained: Any = getattr(model, "num_trained_labels", {})
    for namespace, count in trained.items():
        if model.vocab.get_vocab_size(namespace) > count:
            labels = model.vocab.get_index_to_token_vocabulary(namespace)
            new = [labels[index] for index in range(count, len(labels))]
            raise ConfigurationError(
                f"the data has labels that the model was not trained with: {new[:10]} in the "
                f"namespace {namespace!r}, expected some of its {count}. Remove them from the "
                "data, or train a model with them from the start"
            )
