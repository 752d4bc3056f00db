"""Language model for pretraining: a biLM with a softmax over words."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.files.adagrad_state import PREFIX
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels.backend import (
    TRAINING_DTYPES,
    BiLstmState,
    WeightsModule,
    check_no_hooks,
)
from elmo_plugin.bilm.kernels.gpu import lstm_fused
from elmo_plugin.bilm.kernels.gpu.lstm_directions import lstm_directions
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.lstm import DIRECTIONS, BiLstm, LstmState
from elmo_plugin.bilm.pretraining.loader import BatchPair, to_device
from elmo_plugin.bilm.pretraining.softmax import Negatives, WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary


class StepOutput(NamedTuple):
    """
    Output of the language model for one pair of batches.

    `forward_loss`, `backward_loss`: mean losses in nats per word, scalars. `states`: final LSTM
    states of both directions, detached; the next batch starts from them.
    """

    forward_loss: torch.Tensor
    backward_loss: torch.Tensor
    states: BiLstmState

    @property
    def loss(self) -> torch.Tensor:
        """Mean of both directions' losses, the training objective of bilm-tf."""
        return 0.5 * (self.forward_loss + self.backward_loss)


class LanguageModel(torch.nn.Module):
    """
    Language model that predicts the next word in the forward direction, and the previous word in
    the backward direction (Peters et al. 2018, section 3.1).

    It follows bilm-tf's `LanguageModel` (bilm/training.py at 7cffee2). Both directions share the
    token layer and the softmax. Dropout is applied to every layer's input and to the top layer's
    output.

    # Parameters

    dtype : `str | None`, optional (default = `None`)
        `"bfloat16"` for mixed precision: matrix products in training round their inputs to
        bfloat16; sums, parameters, states and evaluation stay in float32. `None` for float32
        products. `"auto"` for the faster of the two on the machine where the run begins.
    """

    def __init__(
        self, bilm: BiLm, softmax: WordSoftmax, dropout: float = 0.1, dtype: str | None = None
    ) -> None:
        super().__init__()
        if dtype not in (None, "auto", *TRAINING_DTYPES):
            raise ValueError(
                f"dtype is {dtype!r}, expected None, 'auto' or one of {TRAINING_DTYPES}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}, expected at least 0 and below 1")
        self.bilm = bilm
        self.softmax = softmax
        self.dropout = dropout
        self.dtype = dtype
        self.set_training_dtype(None if dtype == "auto" else dtype)

    @property
    def description(self) -> str:
        """Summary of the settings that must be equal in all processes of a run."""
        softmax = self.softmax
        samples = softmax.sampler and softmax.sampler.num_samples
        return (
            f"{self.bilm.options}, dropout {self.dropout}, dtype {self.dtype}, "
            f"num_samples {samples}, sparse {softmax.sparse}, "
            f"sampler {type(softmax.sampler).__name__}"
        )

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights, keyed by their names in checkpoints."""
        return dict(self.state_dict(prefix=PREFIX))

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Load weights, keyed by their names in checkpoints or by their own."""
        self.load_state_dict({name.removeprefix(PREFIX): one for name, one in weights.items()})

    def check_num_characters(self, number: int) -> None:
        """Raise a `ValueError` if text has not as many character ids a token as the biLM."""
        if number != (expected := self.bilm.options.num_characters):
            raise ValueError(
                f"a loader's num_characters is {number}, expected the biLM's {expected}, its "
                "max_characters_per_token"
            )

    def set_training_dtype(self, dtype: str | None) -> None:
        """Set the dtype of the matrix products in training; `None` for float32."""
        for module in (*self.bilm.modules(), self.softmax):
            if isinstance(module, (WeightsModule, WordSoftmax)):
                module.training_dtype = dtype

    def forward(
        self,
        batch: BatchPair,
        states: BiLstmState | None = None,
        negatives: tuple[Negatives, Negatives] | None = None,
        dropout: float | None = None,
    ) -> StepOutput:
        """
        Compute the forward loss (next words) and the backward loss (previous words).

        `states` are the initial LSTM states (default: zeros), `negatives` those of a sampled
        softmax in training (default: drawn here), `dropout` is this batch's (default: the model's).
        """
        lstm = self.bilm.lstm
        check_no_hooks(self.bilm, BiLm)
        check_no_hooks(lstm, BiLstm)
        device = self.softmax.weight.device
        batch = batch.to(device)
        _, num_steps, batch_size = batch.tokens.shape
        self.check_num_characters(batch.characters.shape[1])
        vectors = self.bilm.char_cnn(batch.characters, *([batch.widths] if batch.widths else []))
        places = batch.tokens.flatten()
        # On a GPU, the gradient of `embedding` sorts the places.
        rows = (
            vectors.index_select(0, places)
            if vectors.is_cuda
            else functional.embedding(places, vectors)
        )
        tokens = rows.view(2, num_steps, batch_size, -1)
        if states is None:
            zeros = lstm.initial_state(batch_size)
            states = (zeros, zeros)
        run = self._directions_together if self.fuses_directions else self._directions
        tops, finals = run(tokens, states, self.dropout if dropout is None else dropout)
        forward_loss, backward_loss = self.softmax(tops, batch.targets.flatten(1), negatives)
        return StepOutput(forward_loss, backward_loss, finals)

    def add_gradients(
        self,
        batch: BatchPair,
        states: BiLstmState | None,
        kept: torch.Tensor | None,
        negatives: tuple[Negatives, Negatives] | None,
        dropout: float,
        scale: float,
    ) -> tuple[torch.Tensor, BiLstmState]:
        """
        Add the gradients of a batch's loss times `scale`; return both directions' losses, and the
        final states. Streams that are not `kept`, shape `(2, batch_size, 1)`, begin with zeros.
        """
        if states is not None and kept is not None:
            on_device = to_device(kept, self.softmax.weight.device)
            forward, backward = (
                LstmState(state.hidden * own, state.cell * own)
                for state, own in zip(states, on_device)
            )
            states = forward, backward
        output = self(batch, states, negatives, dropout)
        (output.loss * scale).backward()
        losses = torch.stack([output.forward_loss, output.backward_loss]).detach()
        return losses, output.states

    @property
    def fuses_directions(self) -> bool:
        """Whether a layer's two directions run together, which they do on a GPU."""
        usable = lstm_fused.usable(self.softmax.weight, self._product_dtype, training=True)
        return usable and self.bilm.lstm.plain_weights is not None

    @property
    def _product_dtype(self) -> str | None:
        return self.softmax.training_dtype if self.training else None

    def _directions(
        self, tokens: torch.Tensor, states: BiLstmState, dropout: float
    ) -> tuple[list[torch.Tensor], BiLstmState]:
        """Return the top outputs of each direction, one row for each token, and final states."""
        _, num_steps, batch_size, _ = tokens.shape
        tops, finals = [], []
        # Streams have no padding, so time-major rows are a packed sequence.
        sizes = [batch_size] * num_steps
        for name, rows, state in zip(DIRECTIONS, tokens.flatten(1, 2), states):
            layers, final = self.bilm.lstm.stack(name, rows, sizes, state, dropout)
            tops.append(functional.dropout(layers[-1], dropout, self.training))
            finals.append(final)
        return tops, (finals[0], finals[1])

    def _directions_together(
        self, tokens: torch.Tensor, states: BiLstmState, dropout: float
    ) -> tuple[list[torch.Tensor], BiLstmState]:
        """Return what `_directions` does, by larger and fewer products."""
        lstm, dropout = self.bilm.lstm, dropout if self.training else 0.0
        hidden, cell = (torch.stack(pair) for pair in zip(*states))
        sizes = [tokens.shape[2]] * tokens.shape[1]
        # Shape: (2, num_steps * batch_size, projection_dim)
        inputs, finals = tokens.flatten(1, 2), []
        for index, weights in enumerate(lstm.plain_weights or ()):
            inputs = functional.dropout(inputs, dropout) if dropout else inputs
            outputs, *final = lstm_directions(
                inputs, sizes, hidden[:, index], cell[:, index], weights, self._product_dtype
            )
            skips = index > 0 and lstm.use_skip_connections
            inputs = outputs + inputs if skips else outputs
            finals.append(final)
        tops = functional.dropout(inputs, dropout) if dropout else inputs
        # Shape of each: (2, num_layers, batch_size, dim)
        hidden, cell = (torch.stack(one, dim=1) for one in zip(*finals))
        forward, backward = map(LstmState, hidden, cell)
        return list(tops), (forward, backward)


def make_language_model(
    words: WordVocabulary,
    options: str | dict[str, Any],
    pretrained_file: str | None = None,
    softmax: dict[str, Any] | None = None,
    dropout: float = 0.1,
    dtype: str | None = None,
    counts: torch.Tensor | None = None,
) -> LanguageModel:
    """
    Build a language model from the `model` part of a config.

    # Parameters

    options : `str | dict[str, Any]`
        Options of the biLM: the content, path or URL of an `options.json`, or the name of a biLM.
    pretrained_file : `str | None`, optional (default = `None`)
        Initial weights of the biLM, a `weights.hdf5`; random if not given.
    softmax : `dict[str, Any] | None`, optional (default = `None`)
        Arguments of `WordSoftmax`.
    dropout, dtype
        See `LanguageModel`.
    """
    if pretrained_file is None and not isinstance(options, dict):
        options = options_dict(find_options(options))  # take only the options of a named biLM
    bilm = load_bilm(options, pretrained_file, requires_grad=True)
    if type(bilm.char_cnn) is not CharCnn:
        raise ValueError(
            "model.options is a model of ELMoForManyLangs, expected one in bilm-tf's format"
        )
    word_softmax = WordSoftmax(
        len(words), bilm.options.projection_dim, counts=counts, **(softmax or {})
    )
    return LanguageModel(bilm, word_softmax, dropout, dtype)


def sum_of_losses(
    model: LanguageModel, batches: Iterable[BatchPair], states: BiLstmState | None = None
) -> tuple[float, float, int]:
    """
    Return the sums of the forward and the backward losses of consecutive batches, with the full
    softmax and without dropout, and the number of batches. A batch's loss is its mean in nats per
    word. `states` are the LSTM states before the first batch (default: zeros).
    """
    was_training = model.training
    model.eval()
    forward, backward, count = 0.0, 0.0, 0
    try:
        with torch.no_grad():
            for batch in batches:
                output = model(batch, states)
                states = output.states
                forward += output.forward_loss.item()
                backward += output.backward_loss.item()
                count += 1
    finally:
        model.train(was_training)
    return forward, backward, count


def loss_metrics(forward: float, backward: float, sampled: bool) -> dict[str, float]:
    """
    Return loss and perplexities by name, given the mean losses of both directions in nats per word.

    `loss` is the mean of both. Beside `forward_perplexity` and `backward_perplexity`, `perplexity`
    is their geometric mean, as bilm-tf prints it (bilm/training.py at 7cffee2, `test`). A `sampled`
    softmax has `sampled_perplexity` alone, which is not comparable with it.
    """
    loss = (forward + backward) / 2
    average = math.exp(min(loss, 700.0))
    if sampled:
        return {"loss": loss, "sampled_perplexity": average}
    return {
        "loss": loss,
        "forward_perplexity": math.exp(min(forward, 700.0)),
        "backward_perplexity": math.exp(min(backward, 700.0)),
        "perplexity": average,
    }
