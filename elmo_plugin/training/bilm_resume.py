"""A pretraining run that goes on after --recover as if it had never stopped."""

from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist
from allennlp.common.checks import ConfigurationError
from allennlp.data import TensorDict
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.streams import StreamPosition
from elmo_plugin.data.token_streams import Resumption, TokenStreamsLoader
from elmo_plugin.training.bilm_language_model import BilmLanguageModel


@TrainerCallback.register("bilm_resume", exist_ok=True)
class BilmResume(TrainerCallback):
    """
    Keeps in each checkpoint what the trainer does not know of: both directions' position in the
    text and LSTM state, the step count and the epoch's loss so far. The trainer keeps the
    optimizer and schedule, `random_state` the generators. The epoch's loss is put right where the
    trainer's own is wrong: after a stop within the epoch.

    A default callback, so it needs no key in a config; it leaves other models' runs alone.

    # Parameters

    serialization_dir : `str`
        The run's directory.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._positions: List[StreamPosition] = []
        self._saved: Dict[str, Any] = {}
        self._gathered: List[Dict[str, Any]] = []

    def state_dict(self) -> Dict[str, Any]:
        """
        # Returns

        `Dict[str, Any]`
            Numbers, strings, lists and tensors: `torch.load` refuses other forms.
        """
        if not self._positions or self.trainer is None:
            return {}
        model = self.trainer.model
        assert isinstance(model, BilmLanguageModel)
        return {
            # The positions are those of all processes' streams.
            "positions": [position.to_dict() for position in self._positions],
            "num_steps_done": model.num_steps_done,
            "processes": self._gathered or [_own_state(model)],
        }

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        # Parameters

        state_dict : `Dict[str, Any]`
            What `state_dict` gave.
        """
        self._saved = state_dict

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        """
        Puts everything where it was.

        # Parameters

        trainer : `GradientDescentTrainer`
            The trainer that starts.
        is_primary : `bool`, optional (default = `True`)
            Whether this process is the one that writes.

        # Raises

        `ConfigurationError`
            If the data loader is another, or the checkpoint was made without this.
        """
        if not isinstance(trainer.model, BilmLanguageModel):
            return
        self.trainer = trainer
        model, loader = trainer.model, trainer.data_loader
        if not isinstance(loader, TokenStreamsLoader):
            raise ConfigurationError(
                f"bilm_resume keeps the place of a {type(loader).__name__}, expected the data "
                "loader token_streams"
            )
        self._report_own_loss(trainer, model)
        if trainer._distributed:
            self._gather_before_saving(trainer, model)
        done = (
            trainer._start_after_epochs_completed,
            trainer._start_after_batches_in_epoch_completed,
        )
        if done == (0, 0):
            return
        if "positions" not in self._saved:
            raise ConfigurationError(
                "the checkpoint does not say where in the text its run stood: it was made without "
                "the default callback bilm_resume"
            )
        forward, backward = (StreamPosition.from_dict(one) for one in self._saved["positions"])
        self._positions = [forward, backward]
        steps_a_batch = trainer._num_gradient_accumulation_steps
        loader.resume(Resumption((forward, backward), done[0], done[1] * steps_a_batch))
        model.num_steps_done = self._saved["num_steps_done"]
        processes = self._saved["processes"]
        if len(processes) != loader.world_size:
            raise ConfigurationError(
                f"the checkpoint was made by {len(processes)} processes, expected as many as "
                f"there are now, {loader.world_size}: each has its own part of the text"
            )
        own = processes[trainer._rank]
        device = model.language_model.softmax.weight.device
        states = [LstmState(*pair).map(lambda t: t.to(device)) for pair in own["states"]]
        model.stream_states = (states[0], states[1])
        model.training_totals.values = list(own["totals"])
        if trainer._distributed:  # else `random_state` does it
            self._set_generators_once(model, own)

    def _set_generators_once(self, model: BilmLanguageModel, own: Dict[str, Any]) -> None:
        """At the first batch that is trained on."""

        def set_generators(*_: Any) -> None:
            torch.set_rng_state(own["torch"])
            if own["cuda"] is not None and torch.cuda.is_available():
                torch.cuda.set_rng_state(own["cuda"])
            hook.remove()

        hook = model.register_forward_pre_hook(set_generators)

    def _gather_before_saving(
        self, trainer: GradientDescentTrainer, model: BilmLanguageModel
    ) -> None:
        """Only the first process writes a checkpoint: the others' states are sent to it."""
        checkpointer = trainer._checkpointer
        if checkpointer is None:
            return
        if checkpointer._save_every_num_seconds is not None:
            raise ConfigurationError(
                "save_every_num_seconds is given in a distributed run, expected "
                "save_every_num_batches: the processes' clocks differ, and all must save at once"
            )
        save = checkpointer.save_checkpoint

        def gather_and_save(trainer: GradientDescentTrainer) -> None:
            gathered: Optional[List[Any]] = None
            if trainer._rank == 0:
                gathered = [None] * trainer._world_size
            dist.gather_object(_own_state(model), gathered)
            self._gathered = gathered or []
            save(trainer)

        checkpointer.save_checkpoint = gather_and_save  # type: ignore[assignment, method-assign]

    def on_batch(
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: List[TensorDict],
        batch_outputs: List[Dict[str, Any]],
        batch_metrics: Dict[str, Any],
        epoch: int,
        batch_number: int,
        is_training: bool,
        is_primary: bool = True,
        batch_grad_norm: Optional[float] = None,
        **kwargs: Any,
    ) -> None:
        """
        Notes the place; stops a run whose gradients are no numbers, before it is saved.

        # Parameters

        trainer : `GradientDescentTrainer`
        batch_inputs : `List[TensorDict]`
            The batches of the step.
        batch_outputs : `List[Dict[str, Any]]`
        batch_metrics : `Dict[str, Any]`
        epoch, batch_number : `int`
        is_training : `bool`
        is_primary : `bool`, optional (default = `True`)
        batch_grad_norm : `Optional[float]`, optional (default = `None`)
            The norm of all gradients, where the trainer clips.

        # Raises

        `ValueError`
            If it is not finite.
        """
        if not is_training or not isinstance(trainer.model, BilmLanguageModel):
            return
        if batch_grad_norm is not None and not abs(batch_grad_norm) < float("inf"):
            raise ValueError(
                f"the norm of the gradients is {batch_grad_norm} at step "
                f"{trainer.model.num_steps_done}, expected a finite number; checkpoints before "
                "it are intact"
            )
        self._positions = [one.position for one in batch_inputs[-1]["batch"]]  # type: ignore[union-attr]

    def _report_own_loss(self, trainer: GradientDescentTrainer, model: BilmLanguageModel) -> None:
        train_epoch = trainer._train_epoch

        def train_epoch_and_report(epoch: int) -> Dict[str, float]:
            metrics = train_epoch(epoch)
            if trainer._epochs_completed >= trainer._start_after_epochs_completed:
                # Also where nothing was left to train on: the trainer gives no metrics then.
                if "loss" not in metrics:
                    metrics.update(model.get_metrics(reset=True))
                metrics["loss"] = model.last_training_loss
            return metrics

        trainer._train_epoch = train_epoch_and_report  # type: ignore[method-assign]


def _own_state(model: BilmLanguageModel) -> Dict[str, Any]:
    assert model.stream_states is not None
    return {
        "states": [[tensor.cpu() for tensor in state] for state in model.stream_states],
        "totals": list(model.training_totals.values),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
