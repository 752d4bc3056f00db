"""A biLM in training: both directions' next-word losses over streams, with the state carried."""

from typing import Any, NamedTuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels.backend import TRAINING_DTYPES, WeightsModule
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.export import load_softmax
from elmo_plugin.bilm.training.softmax import Negatives, WordSoftmax
from elmo_plugin.bilm.training.streams import BatchPair
from elmo_plugin.bilm.training.vocabulary import WordVocabulary


class StepOutput(NamedTuple):
    """
    `forward_loss`, `backward_loss`: mean nats per word, scalars.
    `states`: both directions' state at the end, detached, for the next batch of the same streams.
    """

    forward_loss: torch.Tensor
    backward_loss: torch.Tensor
    states: tuple[LstmState, LstmState]

    @property
    def loss(self) -> torch.Tensor:
        """The mean of the two directions, as bilm-tf trains on."""
        return 0.5 * (self.forward_loss + self.backward_loss)


class LanguageModel(torch.nn.Module):
    """
    Predicts each next word forward, and each previous word backward (Peters et al. 2018, section
    3.1), as bilm-tf's `LanguageModel` does (bilm/training.py at 7cffee2): token layer and softmax
    shared by both directions, dropout on every layer's input and on the top layer's output.

    # Parameters

    bilm : `BiLm`
        What is trained.
    softmax : `WordSoftmax`
        Over the vocabulary of the streams.
    dropout : `float`, optional (default = `0.1`)
        Probability of dropping an element.
    dtype : `Optional[str]`, optional (default = `None`)
        `"bfloat16"`: what matrix products of a training step multiply is rounded to it (mixed
        precision); sums, parameters, states and evaluation keep their type. `None` for exact
        products; `"auto"`: the faster of both on the machine where a run begins.

    # Raises

    `ValueError`
        If `dtype` is another.
    """

    def __init__(
        self,
        bilm: BiLm,
        softmax: WordSoftmax,
        dropout: float = 0.1,
        dtype: str | None = None,
    ) -> None:
        super().__init__()
        if dtype not in (None, "auto", *TRAINING_DTYPES):
            raise ValueError(
                f"dtype is {dtype!r}, expected None, 'auto' or one of {TRAINING_DTYPES}"
            )
        self.bilm = bilm
        self.softmax = softmax
        self.dropout = dropout
        self.dtype = dtype
        self.multiply_in(None if dtype == "auto" else dtype)

    @property
    def description(self) -> str:
        """What processes that train it together must have alike."""
        softmax = self.softmax
        samples = softmax.sampler and softmax.sampler.num_samples
        return (
            f"{self.bilm.options}, dropout {self.dropout}, dtype {self.dtype}, "
            f"num_samples {samples}, sparse {softmax.sparse}"
        )

    def multiply_in(self, dtype: str | None) -> None:
        """From now on the products of a training step are in this type, as in the constructor."""
        for module in (*self.bilm.modules(), self.softmax):
            if isinstance(module, (WeightsModule, WordSoftmax)):
                module.training_dtype = dtype

    def forward(
        self,
        batch: BatchPair,
        states: tuple[LstmState, LstmState] | None = None,
        negatives: tuple[Negatives, Negatives] | None = None,
    ) -> StepOutput:
        """
        # Parameters

        batch : `BatchPair`
            Both directions' next tokens, on any device.
        states : `Optional[tuple[LstmState, LstmState]]`
            Where the streams' LSTMs stand; zero at the start of training.
        negatives : `Optional[tuple[Negatives, Negatives]]`
            Each direction's, for a sampled softmax in training; drawn here if not given.

        # Returns

        `StepOutput`

        # Raises

        `ValueError`
            If tokens have more or fewer characters than the biLM's options say.
        """
        lstm = self.bilm.lstm
        device = self.softmax.weight.device
        batch = BatchPair(*(one.to(device) for one in batch))
        batch_size, num_steps, num_characters = batch.forward.characters.shape
        expected = self.bilm.options.num_characters
        if num_characters != expected:
            raise ValueError(
                f"num_characters of the text is {num_characters}, expected {expected}, the biLM's "
                "max_characters_per_token"
            )
        # Streams have no padding: time-major rows are already packed.
        characters = torch.cat([one.characters.transpose(0, 1).flatten(0, 1) for one in batch])
        tokens = self.bilm.char_cnn(characters).chunk(2)
        if states is None:
            zeros = lstm.initial_state(batch_size)
            states = (zeros, zeros)
        tops, finals = [], []
        for direction, inputs, state in zip(("forward", "backward"), tokens, states):
            layers, final = lstm.stack(
                direction, inputs, [batch_size] * num_steps, state, self.dropout
            )
            tops.append(functional.dropout(layers[-1], self.dropout, self.training))
            finals.append(final)
        targets = [one.targets.t().flatten() for one in batch]
        forward_loss, backward_loss = self.softmax(tops, targets, negatives)
        return StepOutput(forward_loss, backward_loss, (finals[0], finals[1]))


def make_language_model(
    words: WordVocabulary,
    options: str | dict[str, Any],
    pretrained_file: str | None = None,
    softmax: dict[str, Any] | None = None,
    dropout: float = 0.1,
    dtype: str | None = None,
) -> LanguageModel:
    """
    As a config's `model` says; the weights are drawn from PyTorch's generator.

    # Parameters

    words : `WordVocabulary`
        To predict.
    options : `str | dict[str, Any]`
        The biLM's sizes: the content of an `options.json`, its path or URL, or a name.
    pretrained_file : `str | None`, optional (default = `None`)
        A `weights.hdf5` to begin with.
    softmax : `dict[str, Any] | None`, optional (default = `None`)
        `num_samples` and `sparse` of `WordSoftmax`; `pretrained_file`, a `softmax.hdf5` to begin
        with.
    dropout, dtype
        See `LanguageModel`.

    # Raises

    `ValueError` or `FileNotFoundError`
        If files do not exist or do not fit.
    """
    if pretrained_file is None and not isinstance(options, dict):
        options = options_dict(find_options(options))  # sizes alone, without the weights
    bilm = load_bilm(options, pretrained_file, requires_grad=True)
    arguments = dict(softmax or {})
    softmax_file = arguments.pop("pretrained_file", None)
    word_softmax = WordSoftmax(len(words), bilm.options.projection_dim, **arguments)
    if softmax_file is not None:
        load_softmax(word_softmax, softmax_file)
    return LanguageModel(bilm, word_softmax, dropout, dtype)
