"""Pretraining behind `allennlp train`: the one loop of `elmo_plugin.bilm.training`."""

import signal
import sys
from typing import Any, Dict, List, Optional, Union

import torch
import torch.distributed as dist
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import SigTermReceived
from allennlp.data import DataLoader
from allennlp.models import Model
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.trainer import Trainer

from elmo_plugin.bilm.training.loop import Pretraining
from elmo_plugin.bilm.training.settings import Step, loop_settings
from elmo_plugin.bilm.training.stop_request import Stopped
from elmo_plugin.data.token_streams import TokenStreamsLoader
from elmo_plugin.training.bilm_language_model import BilmLanguageModel


@Trainer.register("bilm_pretraining", exist_ok=True)
class BilmTrainer(Trainer):
    """
    Trains a `bilm_language_model`, and leaves it in the released format; a checkpoint in the run's
    directory is gone on from. `elmo-plugin pretrain` does the same without AllenNLP.

    # Parameters

    model : `Model`
    data_loader : `DataLoader`
        A `token_streams`.
    validation_data_loader : `Optional[DataLoader]`, optional (default = `None`)
        Another, looked at after each epoch.
    directory : `Optional[str]`, optional (default = `None`)
        Not in a config: the run's directory where several nodes share it.
    callbacks : `Optional[List[Union[str, Dict[str, Any]]]]`, optional (default = `None`)
        `export_bilm`, which may have a `card`; AllenNLP's, whose `on_start`, `on_batch` (of
        training), `on_epoch` and `on_end` are called.
    serialization_dir : `Optional[str]`, optional (default = `None`)
    cuda_device : `Optional[int]`, optional (default = `None`)
    distributed : `bool`, optional (default = `False`)
    local_rank : `int`, optional (default = `0`)
    world_size : `int`, optional (default = `1`)
        As in AllenNLP's trainers.
    settings : `Any`
        Keys of `LoopSettings`; see `loop_settings`.

    # Raises

    `ConfigurationError`
        If settings, model and text make no run.
    """

    def __init__(
        self,
        model: Model,
        data_loader: DataLoader,
        validation_data_loader: Optional[DataLoader] = None,
        directory: Optional[str] = None,
        callbacks: Optional[List[Union[str, Dict[str, Any]]]] = None,
        serialization_dir: Optional[str] = None,
        cuda_device: Optional[int] = None,
        distributed: bool = False,
        local_rank: int = 0,
        world_size: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__(
            directory or serialization_dir,  # type: ignore[arg-type]
            cuda_device,
            distributed,
            local_rank,
            world_size,
        )
        folder: str = self._serialization_dir  # type: ignore[has-type]
        if not isinstance(model, BilmLanguageModel):
            raise ConfigurationError(
                f"bilm_pretraining trains a bilm_language_model, found {type(model).__name__}"
            )
        for loader in (data_loader, validation_data_loader):
            if not isinstance(loader, (TokenStreamsLoader, type(None))):
                raise ConfigurationError(
                    f"bilm_pretraining reads token_streams, found {type(loader).__name__}"
                )
        self.model = model.to(self.cuda_device)
        self._is_first = not distributed or dist.get_rank() == 0
        named = [{"type": one} if isinstance(one, str) else one for one in callbacks or []]
        own = [one for one in named if one["type"] == "export_bilm"]
        self._callbacks = [
            TrainerCallback.from_params(Params(dict(one)), serialization_dir=folder)
            for one in named
            if one["type"] != "export_bilm"
        ]
        plain = {
            name: one.as_dict(quiet=True) if isinstance(one, Params) else one
            for name, one in settings.items()
        }
        try:
            loop = loop_settings(
                {**plain, "callbacks": own},
                gradient_scale=model.gradient_scale,
                frozen_steps=model.frozen_steps,
                command=["allennlp", *sys.argv[1:]],
            )
            self.pretraining = Pretraining(
                model.language_model,
                model.words,
                data_loader.text,  # type: ignore[attr-defined]
                validation_data_loader.text if validation_data_loader is not None else None,  # type: ignore[attr-defined]
                folder,
                loop,
                self._on_step,
                self._on_epoch,
            )
        except (ValueError, OSError) as error:
            raise ConfigurationError(str(error)) from error
        self.optimizer = self.pretraining.stepper.optimizer

    def train(self) -> Dict[str, Any]:
        """
        Gives the run's figures.

        # Raises

        `KeyboardInterrupt` or `SigTermReceived`
            After Ctrl-C or SIGTERM, when all is saved.
        """
        for callback in self._callbacks:
            callback.on_start(self, is_primary=self._is_first)  # type: ignore[arg-type]
        metrics = None
        try:
            metrics = self.pretraining.run()
            return metrics
        except Stopped as stopped:
            if stopped.number == signal.SIGINT:
                raise KeyboardInterrupt(str(stopped)) from stopped
            raise SigTermReceived(str(stopped)) from stopped
        finally:
            for callback in self._callbacks:
                callback.on_end(self, metrics, is_primary=self._is_first)  # type: ignore[arg-type]

    def _on_step(self, step: Step) -> None:
        outputs = [{"loss": torch.tensor(step.loss, dtype=torch.float64)}]
        for callback in self._callbacks:
            callback.on_batch(
                self,  # type: ignore[arg-type]
                [],
                outputs,
                {"loss": step.loss},
                step.epoch,
                step.batch,
                is_training=True,
                is_primary=self._is_first,
                batch_grad_norm=step.norm,
            )

    def _on_epoch(self, epoch: int, metrics: Dict[str, Any]) -> None:
        for callback in self._callbacks:
            callback.on_epoch(self, metrics, epoch, is_primary=self._is_first)  # type: ignore[arg-type]

    def get_best_weights_path(self) -> Optional[str]:
        """The best epoch's weights so far."""
        best = self.pretraining.files.best
        return str(best) if best.exists() else None
