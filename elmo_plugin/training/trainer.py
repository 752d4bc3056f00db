"""AllenNLP's trainer, whose runs may be stopped and resumed as if they had never stopped."""

import atexit
import logging
from contextlib import ExitStack
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from allennlp.nn.util import dist_reduce_sum
from allennlp.training import util as training_util
from allennlp.training.callbacks import ConfidenceChecksCallback, TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer
from allennlp.training.trainer import Trainer, TrainerCheckpoint

from elmo_plugin.bilm.model.lstm import BiLstm
from elmo_plugin.bilm.model.state import StatePolicy
from elmo_plugin.bilm.pretraining.stop_request import StopRequest
from elmo_plugin.modules.archived_bilm import save_extended_vocabulary
from elmo_plugin.training.checkpointer import AtomicCheckpointer
from elmo_plugin.training.metric_counts import counts_of, plain, same, set_counts

logger = logging.getLogger(__name__)

# Key of all processes' states in a checkpoint.
STATES = "elmo_plugin_process_states"


@Trainer.register("gradient_descent", constructor="from_partial_objects", exist_ok=True)
class ResumableTrainer(GradientDescentTrainer):
    """
    AllenNLP's `GradientDescentTrainer`, registered under its name, with the same arguments.

    * At the first signal of `stop_request.SIGNALS`, it saves and stops after the batch. At the
      second, and while a resumed run still skips batches, it stops at once. In a validation,
      the checkpoint has the state before it. Distributed runs stop as AllenNLP's do.
    * A resumed run draws the same random numbers as one that was never stopped, reports the same
      losses and metrics, and ends by `patience` at the same epoch.
    * The LSTM state of each biLM with `state: "carry"` is in the checkpoint. A validation begins
      with zeros, as `allennlp evaluate` does, and training continues from its own state.
    * A model of the type `from_archive` has its vocabulary in the run's own archive.

    # Parameters

    enable_default_callbacks : `bool`, optional (default = `True`)
        If false, the trainer does none of this.
    """

    def __init__(self, *args: Any, enable_default_callbacks: bool = True, **kwargs: Any) -> None:
        kwargs["enable_default_callbacks"] = enable_default_callbacks
        super().__init__(*args, **kwargs)
        self._is_resumable = enable_default_callbacks
        if enable_default_callbacks:
            self._callbacks.append(_Watch(kwargs.get("serialization_dir", "")))
        self._stopping = ExitStack()
        self._losses = [0.0, 0.0]  # sums of losses and of regularization penalties
        # Training metrics of an epoch that is being validated, then all metrics of the last epoch.
        self._train_metrics: Optional[Dict[str, Any]] = None
        self._epoch_metrics: Dict[str, Any] = {}
        self._fresh = counts_of(self.model)

    def get_checkpoint_state(self) -> Optional[TrainerCheckpoint]:
        """Return what a checkpoint holds; in a distributed run, all processes must call this."""
        states = [own := self._own_state()] * self._world_size
        if self._distributed:
            dist.all_gather_object(states, own)
        checkpoint = super().get_checkpoint_state()
        if checkpoint is not None and self._is_resumable:
            checkpoint.trainer_state[STATES] = states
        return checkpoint

    def _own_state(self) -> Dict[str, Any]:
        state = {
            **_generators(),
            "carried": self._carried(),
            "losses": list(self._losses),
            "train_metrics": self._train_metrics,
            "epoch_metrics": self._epoch_metrics,
        }
        if self._train_metrics is None:  # otherwise the counts are those of validation data
            counts, fresh = counts_of(self.model).items(), self._fresh
            state["counts"] = {n: c for n, c in counts if n not in fresh or not same(c, fresh[n])}
        return state

    def _maybe_restore_checkpoint(self) -> None:
        super()._maybe_restore_checkpoint()
        if self._is_resumable and self._is_skipping:
            # It hooks the layers in the first batch, and hooked ones have other last bits.
            checks = ConfidenceChecksCallback
            self._callbacks = [one for one in self._callbacks if not isinstance(one, checks)]

    def _try_train(self) -> Tuple[Dict[str, Any], int]:
        if not self._is_resumable:
            return super()._try_train()
        directory: Optional[str] = self._serialization_dir  # type: ignore[has-type]
        if self._primary and directory:
            save_extended_vocabulary(self.model, directory)
        with self._stopping:
            self._handle_signals()
            self._restore_state()
            begins_an_epoch = self._start_after_batches_in_epoch_completed == 0
            if begins_an_epoch and self._metric_tracker.should_stop_early():
                self._num_epochs = self._start_after_epochs_completed  # patience has ended the run
            try:
                metrics, epoch = super()._try_train()
            except _Stopped:
                assert self._checkpointer is not None
                done = self._epochs_completed, self._batches_in_epoch_completed
                self._checkpointer.maybe_save_checkpoint(self, *done)
                raise AssertionError("a stop saves and raises") from None
            finally:
                self._set_carried({})  # an evaluation after training starts from zero, too
        return {**self._epoch_metrics, **metrics}, epoch

    def _handle_signals(self) -> None:
        checkpointer = self._checkpointer
        if self._distributed:
            atexit.register(leave_process_group)
        elif isinstance(checkpointer, AtomicCheckpointer):
            stop = StopRequest(act_at_once=lambda: self._is_skipping)
            checkpointer.stop = self._stopping.enter_context(stop)

            def end_validation(model: Any, _: Any) -> None:
                if stop.number is not None and not model.training:
                    raise _Stopped

            # Removed at the end: a model cannot be pickled with a local function as a hook.
            hook = self.model.register_forward_pre_hook(end_validation)
            self._stopping.callback(hook.remove)

    @property
    def _is_skipping(self) -> bool:
        """Whether a resumed run is still skipping the batches before its checkpoint."""
        done = self._epochs_completed, self._batches_in_epoch_completed
        start = self._start_after_epochs_completed, self._start_after_batches_in_epoch_completed
        return done < start

    def _restore_state(self) -> None:
        """Set what `_own_state` has from the checkpoint that the run resumes from."""
        loaded = getattr(self._checkpointer, "loaded", None)
        states = [] if loaded is None else loaded.get(STATES, [])
        if len(states) != self._world_size:
            if loaded is not None:
                made_by = f"{len(states)} processes" if states else "version 0.4 or before"
                logger.warning(
                    "The checkpoint was made by %s, now there are %d processes: random numbers, "
                    "carried states and metrics are not restored", made_by, self._world_size,
                )  # fmt: skip
            return
        state = states[dist.get_rank() if self._distributed else 0]
        self._set_carried(state["carried"])
        self._losses = list(state["losses"])
        self._train_metrics, self._epoch_metrics = state["train_metrics"], state["epoch_metrics"]
        set_counts(self.model, state.get("counts", {}))

        def set_generators(*_: Any) -> None:
            if not self._is_skipping:
                _set_generators(state)
                hook.remove()

        hook = self.model.register_forward_pre_hook(set_generators)
        self._stopping.callback(hook.remove)

    def _train_epoch(self, epoch: int) -> Dict[str, float]:
        if not self._is_resumable:
            return super()._train_epoch(epoch)
        skips_batches = self._is_skipping
        skips_all = self._epochs_completed < self._start_after_epochs_completed
        if not skips_batches:
            self._losses = [0.0, 0.0]
        metrics: Dict[str, Any] = super()._train_epoch(epoch)
        if skips_all:
            # AllenNLP reads skipped batches again, to shuffle as before, but no validation's.
            for _ in self._validation_data_loader or ():
                pass
            return metrics
        if skips_batches:
            metrics = {**metrics, **(self._train_metrics or self._whole_epoch(metrics))}
        self._train_metrics = plain(metrics)
        return metrics

    def _whole_epoch(self, metrics: Dict[str, Any]) -> Dict[str, Any]:
        """Return metrics of a resumed epoch, with losses averaged over all of its batches."""
        loss, penalty = (dist_reduce_sum(value) for value in self._losses)
        num_batches = dist_reduce_sum(self._batches_in_epoch_completed)
        if "loss" not in metrics:  # all batches ran before the stop
            has_penalty = self.model.get_regularization_penalty() is not None
            return training_util.get_metrics(
                self.model, loss, penalty if has_penalty else None, batch_loss=None,
                batch_reg_loss=None, num_batches=num_batches, reset=True,
            )  # fmt: skip
        averages = {"loss": loss / num_batches, "reg_loss": penalty / num_batches}
        return {name: value for name, value in averages.items() if name in metrics}

    def _validation_loss(self, epoch: int) -> Tuple[float, Optional[float], int]:
        if not self._is_resumable:
            return super()._validation_loss(epoch)
        carried, generators = self._carried(), _generators()
        self._set_carried({})
        try:
            return super()._validation_loss(epoch)
        except BaseException:
            _set_generators(generators)  # the resumed run repeats the validation
            raise
        finally:
            self._set_carried(carried)

    def _policies(self) -> Dict[str, StatePolicy]:
        modules = self.model.named_modules()
        return {name: one.policy for name, one in modules if isinstance(one, BiLstm)}

    def _carried(self) -> Dict[str, Any]:
        # Copies, because programs may change the tensors in place.
        return {
            name: [one.detach().to("cpu", copy=True) for one in policy.states or ()]
            for name, policy in self._policies().items()
        }

    def _set_carried(self, states: Dict[str, Any]) -> None:
        for name, policy in self._policies().items():
            own = tuple(one.to(self.cuda_device) for one in states.get(name, ()))
            policy.states = own or None


class _Watch(TrainerCallback):
    """Callback that keeps a `ResumableTrainer`'s losses and metrics."""

    def on_batch(  # type: ignore[override]
        self, trainer: Any, batch_inputs: Any, batch_outputs: List[Dict[str, Any]],
        batch_metrics: Dict[str, Any], *args: Any, is_training: bool, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Add the batch's losses in the trainer's order, so that both sums have the same bits."""
        if is_training:
            trainer._losses[0] += batch_metrics["batch_loss"]
            for output in batch_outputs:
                if output.get("reg_loss") is not None:
                    trainer._losses[1] += (output["reg_loss"] / len(batch_outputs)).item()

    def on_epoch(self, trainer: Any, metrics: Dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Keep the metrics of the epoch that has ended."""
        trainer._train_metrics, trainer._epoch_metrics = None, plain(metrics)


class _Stopped(Exception):
    """Exception that ends a validation between two batches."""


def _generators() -> Dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda}


def _set_generators(state: Dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def leave_process_group() -> None:
    """Destroy the gloo process group, whose threads must end before the interpreter does."""
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()
