"""Trainer callback that gives a resumed run the loss and metrics of an uninterrupted run."""

from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy
import torch
from allennlp.data import TensorDict
from allennlp.models import Model
from allennlp.nn.util import dist_reduce_sum
from allennlp.training import util as training_util
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer
from allennlp.training.metrics import Metric

from elmo_plugin.training.process_state import ProcessState


@TrainerCallback.register("training_figures", exist_ok=True)
class TrainingFigures(ProcessState):
    """
    Trainer callback that saves loss and metrics in each checkpoint: sums and counts of the current
    epoch, and results of the last complete epoch.

    It corrects three errors of AllenNLP. Loss and metrics of a resumed epoch start at zero, but the
    loss is divided by the number of batches of the whole epoch. A resumed run with no epoch left
    reports no metrics. A run that `patience` has ended trains another epoch when it is resumed.

    The callback is active in every run, without a key in the config.

    # Parameters

    serialization_dir : `str`
        Folder of the run.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._losses = [0.0, 0.0]  # sums of losses and of regularization penalties
        # Training metrics of an epoch that is being validated, then all metrics of the last epoch.
        self._train_metrics: Optional[Dict[str, Any]] = None
        self._epoch_metrics: Dict[str, Any] = {}

    def own_state(self) -> Dict[str, Any]:
        """
        Return the summed losses, the latest training and validation metrics, and the counts in the
        model's `Metric` objects. Counts that still have their initial values are left out.
        """
        state: Dict[str, Any] = {
            "losses": list(self._losses),
            "train_metrics": self._train_metrics,
            "epoch_metrics": self._epoch_metrics,
        }
        if self._train_metrics is None:  # otherwise the counts are those of validation data
            state["counts"] = {
                name: value
                for name, value in self._counts().items()
                if name not in self._fresh or not _same(value, self._fresh[name])
            }
        return state

    def restore(self, state: Dict[str, Any]) -> None:
        """Set losses, metrics and counts from a result of `own_state`."""
        assert self.trainer is not None
        if "losses" not in state:  # an earlier version saved the state of another callback
            return
        self._losses = list(state["losses"])
        self._train_metrics = state["train_metrics"]
        self._epoch_metrics = state["epoch_metrics"]
        device = next(self.trainer.model.parameters()).device
        metrics = dict(_metrics_of(self.trainer.model))
        for name, value in state.get("counts", {}).items():
            path, _, attribute = name.rpartition(".")
            if path in metrics:
                current = getattr(metrics[path], attribute, None)
                setattr(metrics[path], attribute, _decoded(value, current, device))

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """Restore the saved state, and correct the trainer's metrics from now on."""
        self.trainer = trainer
        self._fresh = self._counts()
        super().on_start(trainer, *args, **kwargs)
        self._correct_epochs(trainer)
        try_train = trainer._try_train

        def try_train_and_complete() -> Tuple[Dict[str, Any], int]:
            if (
                trainer._start_after_batches_in_epoch_completed == 0
                and trainer._metric_tracker.should_stop_early()
            ):  # the trainer checks its patience only after training an epoch
                trainer._num_epochs = trainer._start_after_epochs_completed
            metrics, epoch = try_train()
            return {**self._epoch_metrics, **metrics}, epoch

        trainer._try_train = try_train_and_complete  # type: ignore[method-assign]

    def _correct_epochs(self, trainer: GradientDescentTrainer) -> None:
        train_epoch = trainer._train_epoch

        def train_epoch_and_correct(epoch: int) -> Dict[str, Any]:
            start = trainer._start_after_epochs_completed
            is_resumed = (
                trainer._epochs_completed == start
                and trainer._start_after_batches_in_epoch_completed > 0
            )
            if trainer._epochs_completed >= start and not is_resumed:
                self._losses = [0.0, 0.0]
            metrics: Dict[str, Any] = train_epoch(epoch)
            if is_resumed:
                metrics = {**metrics, **(self._train_metrics or self._whole_epoch(metrics))}
            if trainer._epochs_completed >= start:
                self._train_metrics = _plain(metrics)
            return metrics

        trainer._train_epoch = train_epoch_and_correct  # type: ignore[method-assign]

    def _whole_epoch(self, metrics: Dict[str, Any]) -> Dict[str, Any]:
        """Return metrics of a resumed epoch, with losses averaged over all of its batches."""
        trainer = self.trainer
        assert trainer is not None
        loss, penalty = (dist_reduce_sum(value) for value in self._losses)
        num_batches = dist_reduce_sum(trainer._batches_in_epoch_completed)
        if "loss" not in metrics:  # all batches ran before the stop
            penalized = trainer.model.get_regularization_penalty() is not None
            return training_util.get_metrics(
                trainer.model,
                loss,
                penalty if penalized else None,
                batch_loss=None,
                batch_reg_loss=None,
                num_batches=num_batches,
                reset=True,
            )
        corrected = {"loss": loss / num_batches}
        if "reg_loss" in metrics:
            corrected["reg_loss"] = penalty / num_batches
        return corrected

    def on_batch(  # type: ignore[override]
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: List[TensorDict],
        batch_outputs: List[Dict[str, Any]],
        batch_metrics: Dict[str, Any],
        *args: Any,
        is_training: bool,
        **kwargs: Any,
    ) -> None:
        """Add the batch's losses in the trainer's order, so that both sums have the same bits."""
        if not is_training:
            return
        self._losses[0] += batch_metrics["batch_loss"]
        for output in batch_outputs:
            if output.get("reg_loss") is not None:
                self._losses[1] += (output["reg_loss"] / len(batch_outputs)).item()

    def on_epoch(
        self, trainer: GradientDescentTrainer, metrics: Dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Keep the metrics of the epoch that has ended."""
        self._train_metrics = None
        self._epoch_metrics = _plain(metrics)

    def _counts(self) -> Dict[str, Any]:
        assert self.trainer is not None
        counts = {}
        for path, metric in _metrics_of(self.trainer.model):
            for name, value in vars(metric).items():
                try:
                    counts[f"{path}.{name}"] = _encoded(value)
                except TypeError:
                    continue
        return counts


def _metrics_of(model: Model) -> Iterator[Tuple[str, Metric]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            yield from _metrics_in(value, f"{path}.{name}")


def _metrics_in(value: Any, path: str) -> Iterator[Tuple[str, Metric]]:
    if isinstance(value, Metric):
        yield path, value
        for name, inner in vars(value).items():
            yield from _metrics_in(inner, f"{path}.{name}")
    elif type(value) is dict:
        for key, inner in value.items():
            yield from _metrics_in(inner, f"{path}.{key}")
    elif type(value) in (list, tuple):
        for index, inner in enumerate(value):
            yield from _metrics_in(inner, f"{path}.{index}")


def _encoded(value: Any) -> Any:
    """
    Convert a value to types that `torch.load` accepts by default. A container becomes a list of its
    type name and its items, such as `["tuple", [1, 2]]`.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (numpy.number, numpy.bool_)):
        return value.item()
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return ["dict", [[_encoded(key), _encoded(inner)] for key, inner in value.items()]]
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return [kind.__name__, [_encoded(inner) for inner in value]]
    raise TypeError(f"found a {type(value).__name__}, expected numbers, strings or tensors")


def _decoded(value: Any, current: Any, device: torch.device) -> Any:
    """
    Convert a result of `_encoded` back. `current` is the value to replace. If that is a dictionary,
    it is updated in place and returned, since it may be a `defaultdict`. A tensor is moved to the
    device of `current`, or to `device` if `current` is not a tensor.
    """
    if isinstance(value, torch.Tensor):
        return value.to(current.device if isinstance(current, torch.Tensor) else device)
    if not isinstance(value, list):
        return value
    kind, inner = value
    if kind == "dict":
        decoded = current if isinstance(current, dict) else {}
        decoded.clear()
        for key, one in inner:
            decoded[_decoded(key, None, device)] = _decoded(one, None, device)
        return decoded
    return {"list": list, "tuple": tuple, "set": set}[kind](
        _decoded(one, None, device) for one in inner
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return type(one) is type(other) and torch.equal(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _plain(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """Keep the metrics that `torch.load` reads safely: numbers, strings and `None`."""
    return {
        name: value.item() if isinstance(value, (numpy.number, numpy.bool_)) else value
        for name, value in metrics.items()
        if value is None or isinstance(value, (bool, int, float, str, numpy.number, numpy.bool_))
    }
