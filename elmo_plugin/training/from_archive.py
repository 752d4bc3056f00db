"""Vocabulary, archive and labels of runs whose model has the type `from_archive`."""

import json
import logging
import tarfile
from pathlib import Path
from typing import Any, Dict, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.models import Model
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.modules.archived_bilm import is_from_archive, resolve_model

logger = logging.getLogger(__name__)


@TrainerCallback.register("extended_vocabulary", exist_ok=True)
class ExtendedVocabulary(TrainerCallback):
    """
    Trainer callback that saves the vocabulary of a `from_archive` model for the run's own archive.

    This vocabulary is that of the parent archive (which the model is loaded from), extended by the
    words of the new data. AllenNLP itself would save a vocabulary of the new data alone, in which
    words have other ids. The callback is active in every run, without a key in the config.
    """

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        """Save the model's vocabulary, if its type is `from_archive`."""
        path = Path(self.serialization_dir, "config.json")
        if is_primary and path.is_file() and is_from_archive(_read(path).get("model")):
            trainer.model.vocab.save_to_files(str(Path(self.serialization_dir, "vocabulary")))


def archived_config(path: Union[str, Path]) -> Optional[bytes]:
    """
    Return the config to store in a run's archive, as JSON. Return `None` if the run's config file,
    `path`, can be stored unchanged.

    A model of the type `from_archive` starts from another archive, its parent. In the returned
    config, the config of the parent's model replaces it. Loading the run's archive then needs no
    parent, and AllenNLP finds the model's default predictor. With `enable_default_callbacks: false`
    the config stays, and the parent is needed.
    """
    config = _read(Path(path))
    if not is_from_archive(config.get("model")):
        return None
    if not (config.get("trainer") or {}).get("enable_default_callbacks", True):
        return None  # without `ExtendedVocabulary`, only the parent has the model's vocabulary
    try:
        config["model"], _ = resolve_model(config)
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        logger.warning("The archive cannot be loaded without its parent archive: %s", error)
        return None
    return json.dumps(config, indent=2).encode()


def remember_labels(model: Model) -> None:
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


def check_no_new_labels(model: Model) -> None:
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


def _read(path: Path) -> Dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
