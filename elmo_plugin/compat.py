"""
AllenNLP 2.10.1 on current PyTorch: each repair beside the breakage it mends.

`repair` is called when `elmo_plugin.plugin` is imported. It replaces names inside AllenNLP only
where the stock behaviour fails or warns. `tests/test_compat.py` shows each stock failure too: a
repair whose failure is gone is to be deleted.
"""

import contextlib
import functools
import inspect
import logging
import sys
import tarfile
import tempfile
import types
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import numpy
import spacy
import torch
from allennlp.commands import train
from allennlp.common import cached_transformers
from allennlp.common import util as common_util
from allennlp.models import archival
from allennlp.models.model import Model
from allennlp.nn.parallel import ddp_accelerator
from allennlp.training import gradient_descent_trainer
from allennlp.training import util as training_util
from allennlp.training.learning_rate_schedulers.pytorch_lr_schedulers import (
    ReduceOnPlateauLearningRateScheduler,
)
from allennlp.training.moving_average import MovingAverage

from elmo_plugin.bilm.training.optimization import clip_grad_norm
from elmo_plugin.bilm.training.save_atomically import save_atomically
from elmo_plugin.modules.archived_bilm import loading_from, write_options
from elmo_plugin.old_configs import check_not_of_0_9

logger = logging.getLogger(__name__)


@functools.cache
def repair() -> None:
    """Applies every repair of this file; later calls do nothing."""
    _reduce_on_plateau()
    _mixed_precision_names()
    _sparse_gradient_norm()
    _numpy_scalars_in_training_state()
    _moving_average_after_recover()
    _spacy_tokenizer()
    _transformers_tokenizer()
    _archives_that_write_elsewhere()
    _archives_without_options()
    _configs_of_0_9()
    _best_weights_in_place()
    _nodes_that_share_a_folder()


def _reduce_on_plateau() -> None:
    """AllenNLP passes `verbose` to `ReduceLROnPlateau`, which no longer takes it: TypeError."""
    stock = ReduceOnPlateauLearningRateScheduler.__init__

    @functools.wraps(stock)  # FromParams reads the stock signature
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        call = inspect.signature(stock).bind(self, *args, **kwargs)
        call.apply_defaults()
        arguments = {k: v for k, v in call.arguments.items() if k not in ("self", "verbose")}
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(**arguments)
        super(ReduceOnPlateauLearningRateScheduler, self).__init__(scheduler)

    ReduceOnPlateauLearningRateScheduler.__init__ = __init__  # type: ignore[method-assign]


def _mixed_precision_names() -> None:
    """The trainer uses `torch.cuda.amp`, which is deprecated: a FutureWarning at every batch."""
    amp = types.SimpleNamespace(
        # Not a partial: the trainer gives `enabled` by position, where the new name takes a dtype.
        autocast=lambda enabled=True: torch.amp.autocast("cuda", enabled=enabled),
        GradScaler=functools.partial(torch.amp.GradScaler, "cuda"),
    )
    gradient_descent_trainer.amp = amp  # type: ignore[assignment]
    ddp_accelerator.amp = amp  # type: ignore[assignment]


def _sparse_gradient_norm() -> None:
    """`clip_grad_norm_` refuses the gradients of an `Embedding` with `sparse: true`."""
    for module in (gradient_descent_trainer, ddp_accelerator, training_util):
        module.clip_grad_norm_ = clip_grad_norm  # type: ignore[attr-defined]


def _numpy_scalars_in_training_state() -> None:
    """
    Metrics that are numpy scalars are saved with the training state, and `torch.load`, which is
    safe by default now, refuses them: --recover fails. Only numbers are let in, no objects.
    """
    numbers = (numpy.bool_, numpy.int32, numpy.int64, numpy.float16, numpy.float32, numpy.float64)
    dtypes = [type(numpy.dtype(number)) for number in numbers]
    scalar: Any = numpy.float64(0).__reduce__()[0]  # the function that a pickled number names
    torch.serialization.add_safe_globals([scalar, numpy.dtype, *dtypes])


def _moving_average_after_recover() -> None:
    """
    After --recover the stock moving average follows the parameters that were read from the file,
    not the model's: the averages stop moving, silently. (Not PyTorch's doing, but it breaks
    --recover all the same.)
    """

    def load_state_dict(self: MovingAverage, state_dict: Dict[str, Any]) -> None:
        for name, _ in self._parameters:
            self._shadows[name].copy_(state_dict["shadows"][name])
            self._backups[name].copy_(state_dict["backups"][name])

    MovingAverage.load_state_dict = load_state_dict  # type: ignore[method-assign]


def _spacy_tokenizer() -> None:
    """
    `SpacyTokenizer`, which predictors and readers build themselves, downloads `en_core_web_sm`,
    from a place that need not be reachable, just to split text. A blank English pipeline has the
    same tokenizer rules, without part-of-speech tags.
    """
    split_by_rules("en_core_web_sm")


def split_by_rules(model: str) -> None:
    """
    From now on `SpacyTokenizer` downloads no spaCy model of this name: where it is not installed,
    it has the rules of its language, which its name begins with, without part-of-speech tags.
    """
    if spacy.util.is_package(model) or Path(model).exists():
        return
    logger.info("spaCy's %s is not installed: its tokenizer rules are used, without tags", model)
    for pos_tags in (True, False):
        key: Tuple[str, bool, bool, bool] = (model, pos_tags, False, False)
        common_util.LOADED_SPACY_MODELS.setdefault(key, spacy.blank(model.split("_")[0]))


def _transformers_tokenizer() -> None:
    """
    AllenNLP passes `add_special_tokens` to tokenizers' constructors, which took no notice of it and
    now refuse it as the name of a method. It says it again at each call, where it counts.
    """
    stock = cached_transformers.get_tokenizer

    @functools.wraps(stock)
    def get_tokenizer(model_name: str, **kwargs: Any) -> Any:
        kwargs.pop("add_special_tokens", None)
        return stock(model_name, **kwargs)

    cached_transformers.get_tokenizer = get_tokenizer


class _PlainTarFile(tarfile.TarFile):
    """One that extracts files and folders below its target, and nothing else."""

    @staticmethod
    def extraction_filter(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        if not (member.isfile() or member.isdir()):
            raise ValueError(
                f"the archive holds {member.name!r}, a link or a device, expected files and folders"
            )
        try:
            return tarfile.data_filter(member, path)
        except tarfile.FilterError as error:
            raise ValueError(
                f"the archive holds {member.name!r}, a name outside it, expected files and folders"
            ) from error


def _archives_that_write_elsewhere() -> None:
    """
    Archives are extracted as they say, wherever that is. (Not PyTorch's doing: Python's `tarfile`
    does so up to 3.13.)
    """
    archival.tarfile = types.SimpleNamespace(open=_PlainTarFile.open)  # type: ignore[assignment]


def _archives_without_options() -> None:
    """
    An archive whose config names a biLM by its files loads only where they are. See
    `elmo_plugin.modules.archived_bilm`.
    """
    stock_load = Model._load.__func__  # type: ignore[attr-defined]
    stock_archive = archival.archive_model

    @functools.wraps(stock_load)
    def _load(cls: Any, config: Any, serialization_dir: Any, *args: Any, **kwargs: Any) -> Model:
        with loading_from(serialization_dir):
            return stock_load(cls, config, serialization_dir, *args, **kwargs)

    @functools.wraps(stock_archive)
    def archive_model(
        serialization_dir: Any,
        weights: str = archival._DEFAULT_WEIGHTS,
        archive_path: Any = None,
        include_in_archive: Any = None,
    ) -> str:
        more = write_options(serialization_dir)
        return stock_archive(
            serialization_dir, weights, archive_path, [*(include_in_archive or []), *more]
        )

    Model._load = classmethod(_load)  # type: ignore[method-assign, assignment]
    for name in ("allennlp.models.archival", "allennlp.models", "allennlp.commands.train"):
        if name in sys.modules:  # later imports take it from the first
            sys.modules[name].archive_model = archive_model  # type: ignore[attr-defined]


def _configs_of_0_9() -> None:
    """
    A config of AllenNLP 0.9 stops at `key "data_loader" is required`, or trains without a setting
    whose key is gone.
    """
    stock = training_util.create_serialization_dir

    @functools.wraps(stock)
    def create_serialization_dir(params: Any, *args: Any, **kwargs: Any) -> None:
        # The first thing that `train` does with a config.
        check_not_of_0_9(params.as_dict(quiet=True))
        stock(params, *args, **kwargs)

    training_util.create_serialization_dir = create_serialization_dir


def _best_weights_in_place() -> None:
    """The trainer's best.th, where it is no copy of a checkpoint, is written in place."""

    def _save_model_state(self: Any, path: str) -> None:
        model = self.model if self._ddp_wrapped_model is None else self._ddp_wrapped_model
        save_atomically(model.state_dict(), path)

    gradient_descent_trainer.GradientDescentTrainer._save_model_state = _save_model_state  # type: ignore[method-assign]


def _nodes_that_share_a_folder() -> None:
    """
    Every node of a distributed run makes the run's folder, vocabulary and archive: where they share
    the folder the second node stops, since it exists, and the first waits for ever. In pretraining
    the nodes after the first have one of their own for these, and write nothing to the run's.
    """
    stock = train.train_model

    @functools.wraps(stock)
    def train_model(
        params: Any,
        serialization_dir: Any,
        recover: bool = False,
        force: bool = False,
        node_rank: int = 0,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        trainer = params.params.get("trainer") or {}
        if not node_rank or trainer.get("type") != "bilm_pretraining":
            return stock(params, serialization_dir, recover, force, node_rank, *args, **kwargs)
        vocabulary = Path(serialization_dir, "vocabulary")
        if recover and vocabulary.is_dir():
            params.params["vocabulary"] = {"type": "from_files", "directory": str(vocabulary)}
        trainer["directory"] = str(serialization_dir)
        with tempfile.TemporaryDirectory() as own, _nothing_to_archive():
            return stock(params, own, False, False, node_rank, *args, **kwargs)

    train.train_model = train_model


@contextlib.contextmanager
def _nothing_to_archive() -> Iterator[None]:
    archive = train.archive_model
    train.archive_model = lambda *args, **kwargs: ""
    try:
        yield
    finally:
        train.archive_model = archive
