"""Pretraining as an AllenNLP model: thin over `elmo_plugin.bilm.training`."""

import math
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from allennlp.common import FromParams
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import is_distributed
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn.util import dist_reduce_sum

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.export import export_bilm, load_softmax
from elmo_plugin.bilm.training.language_model import LanguageModel, scale_gradient
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.streams import BatchPair
from elmo_plugin.data.bilm_vocabulary import word_vocabulary
from elmo_plugin.modules.archived_bilm import is_loading, options_in_archive


class Softmax(FromParams):
    """
    How the next word is predicted.

    # Parameters

    num_samples : `Optional[int]`, optional (default = `None`)
        Negatives a training batch shares (8192 in the paper's biLM); `None` for the full softmax.
    sparse : `bool`, optional (default = `False`)
        Sparse gradients: for vocabularies whose dense gradient is too large, with an optimizer that
        takes them (Adagrad). Not with `distributed`.
    pretrained_file : `Optional[str]`, optional (default = `None`)
        A `softmax.hdf5` to begin with; over the same vocabulary.
    """

    def __init__(
        self,
        num_samples: Optional[int] = None,
        sparse: bool = False,
        pretrained_file: Optional[str] = None,
    ) -> None:
        self.num_samples = num_samples
        self.sparse = sparse
        self.pretrained_file = pretrained_file


class Totals:
    """Sums of both directions' losses over batches, for the metrics."""

    def __init__(self) -> None:
        self.values: List[float] = [0.0, 0.0, 0.0]

    def add(self, forward_loss: float, backward_loss: float) -> None:
        """One batch."""
        self.values = [a + b for a, b in zip(self.values, (forward_loss, backward_loss, 1.0))]

    def means(self, over_processes: bool) -> Tuple[float, float]:
        """Mean forward and backward loss; 0 before the first batch."""
        values = (
            [dist_reduce_sum(value) for value in self.values] if over_processes else self.values
        )
        return values[0] / max(1.0, values[2]), values[1] / max(1.0, values[2])


@Model.register("bilm_language_model", exist_ok=True)
class BilmLanguageModel(Model):
    """
    The biLM in pretraining (Peters et al. 2018, section 3.1; bilm-tf's `LanguageModel`): forward
    and backward language model over token streams, whose LSTM state runs on from batch to batch.

    # Parameters

    vocab : `Vocabulary`
        Made by `bilm_words`.
    options : `Union[str, Dict[str, Any]]`
        The biLM's sizes: the content of an `options.json`, its path or URL, or a name (`small`,
        `original`, ...).
    pretrained_file : `Optional[str]`, optional (default = `None`)
        A `weights.hdf5` to begin with. AllenNLP drops this key when it loads an archive, which
        brings the weights itself.
    softmax : `Softmax`, optional (default = `Softmax()`)
    dropout : `float`, optional (default = `0.1`)
        See `LanguageModel`.
    gradient_scale : `float`, optional (default = `1.0`)
        What gradients are multiplied with; the loss that is reported stays the mean. bilm-tf:
        `num_steps`, which makes its clipping bite that much earlier.
    dtype : `Optional[str]`, optional (default = `None`)
        `"bfloat16"` for mixed precision in training; see `LanguageModel`.
    frozen_steps : `int`, optional (default = `0`)
        Steps at first in which the softmax alone trains: for a biLM with pretrained weights on text
        with another vocabulary. Not with `distributed`.

    # Raises

    `ConfigurationError`
        If files do not exist or do not fit.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        options: Union[str, Dict[str, Any]],
        pretrained_file: Optional[str] = None,
        softmax: Softmax = Softmax(),  # noqa: B008
        dropout: float = 0.1,
        gradient_scale: float = 1.0,
        dtype: Optional[str] = None,
        frozen_steps: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.words = word_vocabulary(vocab)
        try:
            bilm = _bilm(options, pretrained_file)
            word_softmax = WordSoftmax(
                len(self.words), bilm.options.projection_dim, softmax.num_samples, softmax.sparse
            )
            if softmax.pretrained_file is not None:
                load_softmax(word_softmax, softmax.pretrained_file)
            self.language_model = LanguageModel(bilm, word_softmax, dropout, dtype)
        except (ValueError, FileNotFoundError) as error:
            raise ConfigurationError(str(error)) from error
        self.gradient_scale = gradient_scale
        if frozen_steps and is_distributed():
            raise ConfigurationError(
                f"frozen_steps is {frozen_steps} in a distributed run, expected 0: train the "
                "softmax in a run of its own first"
            )
        self.frozen_steps = frozen_steps
        # Steps of training, and where its streams' LSTMs stand; not in the state dict, which an
        # archive is made of: `bilm_resume` keeps them.
        self.num_steps_done = 0
        self.stream_states: Optional[Tuple[LstmState, LstmState]] = None
        self.training_totals = Totals()
        self.last_training_loss = 0.0
        self._heldout_states: Optional[Tuple[LstmState, LstmState]] = None
        self._heldout_totals = Totals()

    def forward(self, batch: BatchPair, starts: bool = False) -> Dict[str, torch.Tensor]:
        """
        # Parameters

        batch : `BatchPair`
            Both directions' next tokens.
        starts : `bool`, optional (default = `False`)
            Whether the streams begin here: the LSTMs start at zero.

        # Returns

        `Dict[str, torch.Tensor]`
            Scalars in nats per word: `loss`, the mean of `forward_loss` and `backward_loss`.

        # Raises

        `ValueError`
            If the loss is no longer a number; the text names step, files and lines.
        """
        if self.training and self.frozen_steps:
            self.language_model.bilm.requires_grad_(self.num_steps_done >= self.frozen_steps)
        states = None if starts else (self.stream_states if self.training else self._heldout_states)
        output = self.language_model(batch, states)
        losses = (output.forward_loss.item(), output.backward_loss.item())
        if self.training:
            if not math.isfinite(sum(losses)):
                raise ValueError(
                    f"the loss is {sum(losses) / 2} at step {self.num_steps_done + 1}, expected a "
                    f"finite number; checkpoints before it are intact. The batch was read from "
                    f"{_sources(batch)}"
                )
            self.num_steps_done += 1
            self.stream_states = output.states
            self.training_totals.add(*losses)
        else:
            self._heldout_states = output.states
            self._heldout_totals.add(*losses)
        return {
            "loss": scale_gradient(output.loss, self.gradient_scale),
            "forward_loss": output.forward_loss.detach(),
            "backward_loss": output.backward_loss.detach(),
        }

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        # Parameters

        reset : `bool`, optional (default = `False`)
            Whether to begin anew; under `distributed` only then are all processes counted.

        # Returns

        `Dict[str, float]`
            `forward_perplexity` and `backward_perplexity` per word, and `perplexity`, their
            geometric mean. In training with a sampled softmax only `sampled_perplexity`, which is
            not comparable to them.
        """
        totals = self.training_totals if self.training else self._heldout_totals
        forward, backward = totals.means(over_processes=reset and is_distributed())
        if reset and self.training:
            self.last_training_loss = (forward + backward) / 2
            self.training_totals = Totals()
        elif reset:
            self._heldout_totals = Totals()
        average = _exp((forward + backward) / 2)
        if self.training and self.language_model.softmax.sampler is not None:
            return {"sampled_perplexity": average}
        return {
            "forward_perplexity": _exp(forward),
            "backward_perplexity": _exp(backward),
            "perplexity": average,
        }

    def export(self, directory: Union[str, Path], card: Dict[str, Any]) -> None:
        """
        Writes what `export_bilm` does.

        # Parameters

        directory : `Union[str, Path]`
            Where to.
        card : `Dict[str, Any]`
            How the biLM came to be.
        """
        export_bilm(
            self.language_model.bilm,
            directory,
            vocabulary=self.words,
            softmax=self.language_model.softmax,
            card=card,
        )


def _bilm(options: Union[str, Dict[str, Any]], pretrained_file: Optional[str]) -> Any:
    if pretrained_file is None and not isinstance(options, dict):
        # Sizes alone: from a file, without its weights.
        options = (
            options_in_archive(options) if is_loading() else options_dict(find_options(options))
        )
    return load_bilm(options, pretrained_file, requires_grad=True)


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def _sources(batch: BatchPair) -> str:
    places = sorted({f"{path}:{line}" for one in batch for path, line in one.sources})
    shown = ", ".join(places[:20])
    return shown if len(places) <= 20 else f"{shown} and {len(places) - 20} more"
