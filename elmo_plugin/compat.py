"""
Patches of AllenNLP 2.10.1. Each patch is a function in this module.

`elmo_plugin.plugin` calls `repair`, which applies them. Some repair what fails or warns on current
versions of other packages; `tests/test_compat.py` shows each failure. The others give files that
are written whole, archives that need no other file, and errors where AllenNLP would go on.

Private names of AllenNLP 2.10.1, its last version, that this package uses:

- trainer: `_batches_in_epoch_completed`, `_checkpointer`, `_ddp_wrapped_model`, `_distributed`,
  `_epochs_completed`, `_metric_tracker`, `_rank`, `_start_after_batches_in_epoch_completed`,
  `_start_after_epochs_completed`, `_train_epoch`, `_try_train`, `_validation_data_loader`,
  `_validation_loss`, `_world_size`;
- checkpointer: `_find_all_checkpoints`, `_is_primary`, `_keep_most_recent_by_age`,
  `_keep_most_recent_by_count`, `_model_state_path`, `_remove_checkpoint`, `_save_model_state`,
  `_serialization_dir`, `_training_state_path`; moving average: `_backups`, `_parameters`,
  `_shadows`;
- archives and models: `_DEFAULT_WEIGHTS`, `_load`, `_load_model`, `_elmo`, `_elmo_lstm`;
  feedforward and spans: `_activations`, `_dropout`, `_global_attention`, `_linear_layers`,
  `_module`, `_span_width_embedding`; `_token_embedders`, `_vocab_namespace`, `_projection`;
- data: `_distributed_info`, `_indexed_labels`, `_label_id`, `_label_namespace`, `_oov_token`,
  `_read`, `_set_distributed_info`, `_set_worker_info`, `_skip_indexing`, `_start_batch_workers`,
  `_start_instance_workers`; predictors: `_dataset_reader`, `_json_to_instance`, `_model`.
"""

import functools
import importlib.util
import inspect
import io
import json
import shutil
import tarfile
import tempfile
import types
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import numpy
import torch
from allennlp.common import Params, cached_transformers, file_utils
from allennlp.common import util as common_util
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import multiprocess_data_loader
from allennlp.models import archival
from allennlp.models.model import Model
from allennlp.modules.seq2vec_encoders import CnnHighwayEncoder
from allennlp.modules.token_embedders import TokenCharactersEncoder
from allennlp.nn import util as nn_util
from allennlp.nn.parallel import ddp_accelerator
from allennlp.training import gradient_descent_trainer
from allennlp.training import util as training_util
from allennlp.training.learning_rate_schedulers.pytorch_lr_schedulers import (
    ReduceOnPlateauLearningRateScheduler,
)
from allennlp.training.moving_average import MovingAverage

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.pretraining.checkpoints import save_atomically
from elmo_plugin.bilm.pretraining.config import TYPE, is_pretraining
from elmo_plugin.bilm.pretraining.optimization import clip_grad_norm
from elmo_plugin.bilm.pretraining.pretrain import CONFIG, STARTED, names_without_logs
from elmo_plugin.data.spacy_model import split_by_rules
from elmo_plugin.modules.archived_bilm import (
    archived_config,
    check_no_new_labels,
    loading_from,
    remember_labels,
    write_options,
)
from elmo_plugin.old_configs import check_not_of_0_9


@functools.cache
def repair() -> None:
    """Apply all patches in this module. Later calls do nothing."""
    # Import here: importing `train` loads the plugin, which needs this file to be complete.
    from allennlp.commands import train

    loader: Any = multiprocess_data_loader.MultiProcessDataLoader
    for function, wrapper in (
        (nn_util.tiny_value_of_dtype, _tiny_value_of_dtype),
        (MovingAverage.load_state_dict, _load_moving_average),
        (file_utils.cached_path, _cached_path),
        (common_util.get_spacy_model, _get_spacy_model),
        (cached_transformers.get_tokenizer, _get_tokenizer),
        (archival.load_archive, _load_archive),
        (archival.archive_model, _archive_model),
        (vars(Model)["_load"].__func__, _load_model),
        (Model.extend_embedder_vocab, _extend_embedder_vocab),
        (training_util.create_serialization_dir, _create_serialization_dir),
        (Params.to_file, _write_config),
        (gradient_descent_trainer.GradientDescentTrainer._save_model_state, _save_best_weights),
        (train.train_model, _train_model),
        (loader._start_instance_workers, _start_workers),
        (loader._start_batch_workers, _start_workers),
    ):
        _wrap_in_place(function, wrapper)
    _wrap_constructor(ReduceOnPlateauLearningRateScheduler, _reduce_on_plateau)
    # Lambdas, with which a module cannot be pickled, become `torch.nn.Identity`.
    _wrap_constructor(TokenCharactersEncoder, functools.partial(_with_identity, "_dropout"))
    _wrap_constructor(CnnHighwayEncoder, functools.partial(_with_identity, "_layer_norm"))
    _mixed_precision_names()
    _sparse_gradient_norm()
    _numpy_scalars_in_training_state()
    _treebanks()
    _archives()


def _wrap_in_place(function: Any, wrapper: Callable[..., Any]) -> None:
    """
    Replace a function's code, so that a call returns `wrapper(stock, ...)`, where `stock` is a copy
    of the original function. The function object stays the same: an ordinary wrapper would not
    reach the modules of AllenNLP and of users that have already imported the function by name.
    """
    stock = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    stock.__kwdefaults__ = function.__kwdefaults__
    function.__wrapped__, function.__defaults__ = stock, None
    function.__kwdefaults__ = {"_wrapper": functools.partial(wrapper, stock)}
    function.__code__ = _call.__code__


def _call(*args: Any, _wrapper: Callable[..., Any], **kwargs: Any) -> Any:
    return _wrapper(*args, **kwargs)


def _wrap_constructor(cls: Any, wrapper: Callable[..., None]) -> None:
    """Wrap a constructor that calls `super()`, whose code cannot be replaced."""
    stock = cls.__init__

    @functools.wraps(stock)  # FromParams must see the stock signature
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        wrapper(stock, self, *args, **kwargs)

    cls.__init__ = __init__


def _reduce_on_plateau(stock: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Fix a TypeError: AllenNLP passes `verbose`, which `ReduceLROnPlateau` no longer accepts."""
    call = inspect.signature(stock).bind(self, *args, **kwargs)
    call.apply_defaults()
    arguments = {k: v for k, v in call.arguments.items() if k not in ("self", "verbose")}
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(**arguments)
    super(ReduceOnPlateauLearningRateScheduler, self).__init__(scheduler)


def _with_identity(name: str, stock: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    stock(self, *args, **kwargs)
    if not isinstance(getattr(self, name), torch.nn.Module):
        setattr(self, name, torch.nn.Identity())


def _mixed_precision_names() -> None:
    """Make AllenNLP's trainer use `torch.amp`, since `torch.cuda.amp` warns at every batch."""
    amp = types.SimpleNamespace(
        # The trainer passes `enabled` first, but the first argument of `torch.amp.autocast` is
        # the device.
        autocast=lambda enabled=True: torch.amp.autocast("cuda", enabled=enabled),
        GradScaler=functools.partial(torch.amp.GradScaler, "cuda"),
    )
    gradient_descent_trainer.amp = amp  # type: ignore[assignment]
    ddp_accelerator.amp = amp  # type: ignore[assignment]


def _tiny_value_of_dtype(stock: Any, dtype: torch.dtype) -> float:
    """Let AllenNLP's masked softmax and losses take bfloat16, whose range is that of float32."""
    return stock(torch.float32 if dtype == torch.bfloat16 else dtype)


def _sparse_gradient_norm() -> None:
    """Let AllenNLP clip sparse gradients, on which `clip_grad_norm_` fails before PyTorch 2.14."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1).to_sparse()
    try:
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        return
    except NotImplementedError:
        pass
    for module in (gradient_descent_trainer, ddp_accelerator, training_util):
        module.clip_grad_norm_ = clip_grad_norm  # type: ignore[attr-defined]


def _numpy_scalars_in_training_state() -> None:
    """
    Let `torch.load` read NumPy numbers, which AllenNLP saves as metrics in the training state. By
    default, `torch.load` now rejects them, so `--recover` would fail.
    """
    numbers = (numpy.bool_, numpy.int32, numpy.int64, numpy.float16, numpy.float32, numpy.float64)
    dtypes = [type(numpy.dtype(number)) for number in numbers]
    scalar: Any = numpy.float64(0).__reduce__()[0]  # the function that unpickles a number
    torch.serialization.add_safe_globals([scalar, numpy.dtype, *dtypes])


def _load_moving_average(stock: Any, self: MovingAverage, state_dict: Dict[str, Any]) -> None:
    """
    Average the model's parameters after `--recover`. Unpatched, AllenNLP averages tensors read from
    the checkpoint, which never change.
    """
    for name, _ in self._parameters:
        self._shadows[name].copy_(state_dict["shadows"][name])
        self._backups[name].copy_(state_dict["backups"][name])


def _cached_path(stock: Any, url_or_filename: Any, *args: Any, **kwargs: Any) -> str:
    """Let AllenNLP read local files where the folder of its cache cannot be made."""
    try:
        return stock(url_or_filename, *args, **kwargs)
    except OSError:
        if args or kwargs or not Path(url_or_filename).exists():
            raise
        return str(url_or_filename)


def _get_spacy_model(stock: Any, spacy_model_name: str, *args: Any, **kwargs: Any) -> Any:
    """Let AllenNLP's `SpacyTokenizer` split text without a download; see `split_by_rules`."""
    split_by_rules(spacy_model_name)
    return stock(spacy_model_name, *args, **kwargs)


def _treebanks() -> None:
    """
    Let `ptb_trees` of allennlp-models read the file that a config names: NLTK 3.10 refuses files
    outside its own data folders.
    """
    if importlib.util.find_spec("allennlp_models") is None:
        return
    import nltk.data
    from nltk.corpus.reader.bracket_parse import BracketParseCorpusReader

    def __init__(stock: Any, self: Any, root: str, *args: Any, **kwargs: Any) -> None:
        nltk.data.path.append(str(root or "."))
        stock(self, root, *args, **kwargs)

    _wrap_in_place(BracketParseCorpusReader.__init__, __init__)


def _get_tokenizer(stock: Any, model_name: str, **kwargs: Any) -> Any:
    """
    Do not pass `add_special_tokens` to the constructor of a Hugging Face tokenizer, which now
    rejects this argument. AllenNLP also passes it in each call of the tokenizer, which is enough.
    """
    kwargs.pop("add_special_tokens", None)
    return stock(model_name, **kwargs)


class _PlainTarFile(tarfile.TarFile):
    """
    `TarFile` that extracts only files and folders, and only into its target folder. Before 3.14,
    Python's own writes a member `../file` outside it.
    """

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

    def add(self, name: Any, arcname: Any = None, *args: Any, **kwargs: Any) -> None:
        """Add a file. A `from_archive` config is replaced by one that needs no other archive."""
        content = archived_config(name) if arcname == archival.CONFIG_NAME else None
        if content is None:
            super().add(name, arcname, *args, **kwargs)
            return
        member = self.gettarinfo(name, arcname)
        member.size = len(content)
        self.addfile(member, io.BytesIO(content))


def _archives() -> None:
    """
    Read archives by `_PlainTarFile`, and notice a checksum that differs, to which AllenNLP is
    blind. Write them with the config from `archived_config`.
    """

    @contextmanager
    def extracted_archive(resolved_archive_file: Any, cleanup: bool = True) -> Iterator[str]:
        path = resolved_archive_file
        with ExitStack() as stack:
            folder = tempfile.mkdtemp()
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            archival.logger.info("extracting archive file %s to temp dir %s", path, folder)
            with _PlainTarFile.open(path, "r:gz") as archive:
                archive.extractall(folder)
                assert archive.fileobj is not None
                while archive.fileobj.read(2**20):  # gzip verifies its checksum at the end
                    pass
            if not cleanup:
                stack.pop_all()
            yield folder

    archival.extracted_archive = extracted_archive
    archival.tarfile = types.SimpleNamespace(open=_PlainTarFile.open)  # type: ignore[assignment]


def _load_archive(stock: Any, archive_file: Any, *args: Any, **kwargs: Any) -> Any:
    """Name the archive in errors; unpatched, they name at most a temporary folder."""
    archival.cached_path(archive_file)  # raises a clear error if there is no such file
    try:
        return stock(archive_file, *args, **kwargs)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ConfigurationError(
            f"the archive {archive_file} cannot be loaded ({type(error).__name__}: {error}), "
            "expected the model.tar.gz or the folder of a run"
        ) from error


def _archive_model(
    stock: Any,
    serialization_dir: Any,
    weights: str = archival._DEFAULT_WEIGHTS,
    archive_path: Any = None,
    include_in_archive: Any = None,
) -> str:
    """
    Store the biLM's options in a model's archive. Otherwise an archive can only be loaded where the
    options file that its config names exists. See `elmo_plugin.modules.archived_bilm`.
    """
    more = write_options(serialization_dir)
    return stock(serialization_dir, weights, archive_path, [*(include_in_archive or []), *more])


def _load_model(
    stock: Any, cls: Any, config: Any, serialization_dir: Any, *args: Any, **kwargs: Any
) -> Model:
    """Read the options that `_archive_model` stored, and remember the labels."""
    with loading_from(serialization_dir):
        model = stock(cls, config, serialization_dir, *args, **kwargs)
    remember_labels(model)
    return model


def _extend_embedder_vocab(stock: Any, self: Model, *args: Any, **kwargs: Any) -> None:
    """
    Raise an error if a trained model gets new labels. `evaluate --extend-vocab` and `from_archive`
    add them to the vocabulary, but the output layer has no rows for them.
    """
    check_no_new_labels(self)
    stock(self, *args, **kwargs)


def _create_serialization_dir(
    stock: Any, params: Any, serialization_dir: Any, recover: bool, force: bool
) -> None:
    """
    Let `--recover` begin a run, as the script of a requeued job needs it. Its folder is absent, or
    has only logs and what a job wrote that was killed in its first second. A distributed run
    without a checkpoint makes its vocabulary. Refuse a config of AllenNLP 0.9, with an error that
    names the old keys and their replacements; AllenNLP 2 says only `key "data_loader" is required`,
    or ignores them.
    """
    # Check here, because `train` and `find-lr` call this function before any other work.
    config = params.as_dict(quiet=True)
    check_not_of_0_9(config)
    if is_pretraining(config):
        raise ConfigurationError(
            "this is a config of pretraining, which `elmo-plugin pretrain` and `allennlp "
            "train` run and no other command"
        )
    folder = Path(serialization_dir)
    if recover and not force and _holds_no_run(folder, params):
        training_util.logger.info("%s holds no run to recover: a new one begins", folder)
        folder.mkdir(parents=True, exist_ok=True)
    else:
        stock(params, serialization_dir, recover, force)
    # AllenNLP would load the vocabulary, which may be missing, or cut short by a kill.
    if recover and "distributed" in config and not any(folder.glob("training_state_*")):
        shutil.rmtree(folder / "vocabulary", ignore_errors=True)
        training_util.make_vocab_from_params(params.duplicate(), folder)


def _holds_no_run(folder: Path, params: Params) -> bool:
    if not folder.exists():
        return True
    names = names_without_logs(folder)
    if CONFIG not in names:
        return not names
    begun = (folder / CONFIG).read_text(encoding="utf-8", errors="replace")
    whole = json.dumps(params.as_ordered_dict(), indent=4)
    if begun == whole or not whole.startswith(begun):
        return False
    if more := names - STARTED:
        raise ConfigurationError(
            f"{folder / CONFIG} is cut short, and the folder also holds {min(more)}; expected the "
            "config of the run in it, or another folder"
        )
    return True


def _write_config(stock: Any, params: Any, params_file: Any, *args: Any, **kwargs: Any) -> None:
    """Write the config atomically."""
    with atomic_write(params_file) as temporary:
        stock(params, temporary, *args, **kwargs)


def _save_best_weights(stock: Any, trainer: Any, path: str) -> None:
    """Write best.th atomically, so that a kill never truncates it."""
    model = trainer.model if trainer._ddp_wrapped_model is None else trainer._ddp_wrapped_model
    save_atomically(model.state_dict(), path)


def _train_model(stock: Any, params: Any, serialization_dir: Any, *args: Any, **kwargs: Any) -> Any:
    """
    Let pretraining manage its own folder. `allennlp train` would delete the whole folder with
    `--force`, overwrite the config when it resumes, and make an archive at the end.
    """
    if not is_pretraining(params.params):
        return stock(params, serialization_dir, *args, **kwargs)
    from allennlp.commands.train import TrainModel

    given = inspect.signature(stock).bind(params, serialization_dir, *args, **kwargs).arguments
    params.params["type"] = TYPE
    run = TrainModel.from_params(
        params,
        serialization_dir=str(serialization_dir),
        recover=given.get("recover", False),
        force=given.get("force", False),
    )
    if not given.get("dry_run", False):
        run.run()
    return None


def _start_workers(stock: Any, loader: Any, queue: Any, context: Any) -> Any:
    """
    Fix data loaders with `start_method: "spawn"`. AllenNLP's lock for the progress bar works only
    with forked workers.
    """
    stock_mp = multiprocess_data_loader.mp
    multiprocess_data_loader.mp = types.SimpleNamespace(RLock=context.RLock)  # type: ignore[assignment]
    try:
        return stock(loader, queue, context)
    finally:
        multiprocess_data_loader.mp = stock_mp
