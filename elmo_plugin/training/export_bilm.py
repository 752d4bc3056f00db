"""A finished pretraining run leaves a biLM that ELMo's users can load."""

import sys
import time
from typing import Any, Dict, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.training.bilm_language_model import BilmLanguageModel


@TrainerCallback.register("export_bilm", exist_ok=True)
class ExportBilm(TrainerCallback):
    """
    Writes `options.json`, `weights.hdf5`, `vocabulary.txt`, `softmax.hdf5` and the model card
    `card.json` into the run's directory: when the run has ended, with the best epoch's weights, and
    never after an interruption (`python -m elmo_plugin export-bilm` does it from any checkpoint).

    # Parameters

    serialization_dir : `str`
        The run's directory.
    card : `Optional[Dict[str, Any]]`, optional (default = `None`)
        What the card says beside the figures: the data, say.
    """

    def __init__(self, serialization_dir: str, card: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(serialization_dir)
        self._card = card or {}

    def on_end(
        self,
        trainer: GradientDescentTrainer,
        metrics: Optional[Dict[str, Any]] = None,
        epoch: Optional[int] = None,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        """
        # Parameters

        trainer : `GradientDescentTrainer`
            The trainer that ends.
        metrics : `Dict[str, Any]`, optional (default = `None`)
            Its metrics; `None` if it was interrupted.
        epoch : `int`, optional (default = `None`)
            Its last epoch.
        is_primary : `bool`, optional (default = `True`)
            Whether this process is the one that writes.

        # Raises

        `ConfigurationError`
            If the model is no `bilm_language_model`.
        """
        if metrics is None or not is_primary:
            return
        model = trainer.model
        if not isinstance(model, BilmLanguageModel):
            raise ConfigurationError(
                f"export_bilm writes a bilm_language_model, found {type(model).__name__}"
            )
        card = {
            **self._card,
            "command": " ".join(["allennlp", *sys.argv[1:]]),
            "finished": time.strftime("%Y-%m-%d"),
            "steps": model.num_steps_done,
            "metrics": metrics,
        }
        model.export(self.serialization_dir, card)
