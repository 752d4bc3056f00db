"""Pretraining by `allennlp train`, with the loop and the config of `elmo-plugin pretrain`."""

import copy
import sys
from typing import Any, Dict

from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.pretraining.config import TYPE, check_config
from elmo_plugin.bilm.pretraining.pretrain import pretrain
from elmo_plugin.bilm.pretraining.stop_request import Stopped
from elmo_plugin.training.saved_interrupt import saved_interrupt


@TrainModel.register(TYPE, exist_ok=True)
class BilmPretraining(TrainModel):
    """
    Pretraining of a biLM by `allennlp train`, with the config of `elmo-plugin pretrain`.

    The run's folder gets `options.json` and `weights.hdf5` instead of a `model.tar.gz`. Raise a
    `ConfigurationError` if the config has a wrong or unknown key.

    # Parameters

    config, serialization_dir, recover, force : `Any`
        Config, folder and options of `elmo-plugin pretrain`.
    """

    def __init__(
        self, config: Dict[str, Any], serialization_dir: str, recover: bool, force: bool
    ) -> None:
        self.config, self.serialization_dir = config, serialization_dir
        self.recover, self.force = recover, force
        try:
            check_config(config, "the config")
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @classmethod
    def from_params(  # type: ignore[override]
        cls,
        params: Params,
        serialization_dir: str,
        recover: bool = True,
        force: bool = False,
        **extras: Any,
    ) -> "BilmPretraining":
        """Construct the instance from AllenNLP's config and command-line options."""
        config: Dict[str, Any] = copy.deepcopy(params.as_dict(quiet=True))
        params.params.clear()
        return cls({**config, "type": TYPE}, serialization_dir, recover, force)

    def run(self) -> Dict[str, Any]:
        """
        Pretrain the biLM, and return the metrics of the run. After a signal, raise
        `KeyboardInterrupt` or `SigTermReceived`, once a checkpoint is saved.
        """
        try:
            return pretrain(
                self.config,
                self.serialization_dir,
                recover=self.recover,
                force=self.force,
                source="",
                command=["allennlp", *sys.argv[1:]],
            )
        except Stopped as stopped:
            raise saved_interrupt(stopped.number, str(stopped)) from stopped
        except (ValueError, OSError) as error:
            raise ConfigurationError(str(error)) from error
