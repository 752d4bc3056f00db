"""
Speed of a pretraining step in four variants: PyTorch's autograd, this package without its C++
library, with it in float32, and in mixed precision (the model's `dtype="bfloat16"`). Autograd's
variant computes the input projections of all time steps in one product.
"""

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.nn import functional

from benchmarks.rounds import Clock, MatrixRate, counted_flops, in_turn
from benchmarks.workload import FILTERS, Sentences
from elmo_plugin.bilm.kernels import library, token_layer, tuning
from elmo_plugin.bilm.kernels.token_cache import distinct_rows
from elmo_plugin.bilm.kernels.token_layer import encode, linears_of
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import BatchPair
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax

BATCH_SIZE, NUM_STEPS = 128, 20
NUM_WORDS, NUM_SAMPLES = 50_000, 2_048
OPTIONS = ElmoOptions(128, 512, 2, 16, FILTERS[:5], 1)


def by_autograd(cell: LstmCellWithProjection) -> Callable[..., Any]:
    """Return a replacement of `LstmCellWithProjection.forward` that relies on autograd."""

    def forward(inputs: torch.Tensor, _: Any, state: Any) -> Any:
        # A replaced method is called as AllenNLP calls its own, with padded sentences.
        if not cell.go_forward:
            inputs = inputs.flip(1)
        sizes = cell.hidden_size, cell.cell_size
        start = state or [inputs.new_zeros(1, len(inputs), size) for size in sizes]
        hidden, memory = (one.squeeze(0) for one in start)
        outputs = []
        for products in cell.input_linearity(inputs).unbind(1):
            gates = products + cell.state_linearity(hidden)
            i, f, g, o = gates.chunk(4, dim=1)
            memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
            memory = memory.clamp(-cell.cell_clip, cell.cell_clip)
            hidden = cell.state_projection(torch.sigmoid(o) * torch.tanh(memory))
            hidden = hidden.clamp(-cell.projection_clip, cell.projection_clip)
            outputs.append(hidden)
        stacked = torch.stack(outputs, dim=1)
        if not cell.go_forward:
            stacked = stacked.flip(1)
        return stacked, (hidden.unsqueeze(0), memory.unsqueeze(0))

    return forward


def tokens_by_autograd(char_cnn: CharCnn) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a replacement of `CharCnn.forward` that uses PyTorch's own operators and autograd."""

    def forward(character_ids: torch.Tensor) -> torch.Tensor:
        distinct, inverse = distinct_rows(character_ids)
        weights = char_cnn.weights
        linears = linears_of(
            weights,
            lambda *both: functools.partial(functional.linear, weight=both[0], bias=both[1]),
        )
        with mock.patch.object(token_layer, "largest", lambda convolved: convolved.amax(dim=1)):
            vectors = encode(distinct, weights, linears, tuning.TRAINED_TOKENS_AT_ONCE)
        return functional.embedding(inverse, vectors)

    return forward


class SoftmaxByAutograd(WordSoftmax):
    """Softmax with the same loss as `WordSoftmax`, computed by PyTorch's own operators."""

    def forward(self, outputs: Any, targets: Any, _: Any = None) -> list[torch.Tensor]:
        return [self._sampled_by_autograd(*one) for one in zip(outputs, targets)]

    def _sampled_by_autograd(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert self.sampler is not None
        negatives = self.sampler.sample()
        others = self.word_ids(negatives)
        ids = torch.cat([targets, others])
        weight, bias = functional.embedding(ids, self.weight), self.bias[ids].squeeze(-1)
        bias = bias - self.sampler.log_expected_count(ids, negatives.num_tries).to(bias.dtype)
        num_rows = len(targets)
        true_logits = (outputs * weight[:num_rows]).sum(dim=-1) + bias[:num_rows]
        logits = functional.linear(outputs, weight[num_rows:], bias[num_rows:])
        logits = logits.masked_fill(targets.unsqueeze(1) == others, -torch.inf)
        logits = torch.cat([true_logits.unsqueeze(1), logits], dim=1)
        return functional.cross_entropy(logits, torch.zeros_like(targets))


def model(autograd: bool, dtype: str | None = None) -> LanguageModel:
    torch.manual_seed(0)
    softmax = SoftmaxByAutograd if autograd else WordSoftmax
    language_model = LanguageModel(
        BiLm(OPTIONS),
        softmax(NUM_WORDS, OPTIONS.projection_dim, NUM_SAMPLES),
        dropout=0.0,
        dtype=dtype,
    )
    if autograd:
        char_cnn = language_model.bilm.char_cnn
        char_cnn.forward = tokens_by_autograd(char_cnn)  # type: ignore[method-assign]
        for module in language_model.modules():
            if isinstance(module, LstmCellWithProjection):
                module.forward = by_autograd(module)  # type: ignore[method-assign]
    return language_model


def step(language_model: LanguageModel, batch: BatchPair) -> torch.Tensor:
    """Compute the loss and the parameters' gradients; return the loss."""
    torch.manual_seed(1)
    language_model.zero_grad()
    loss = language_model(batch).loss
    loss.backward()
    return loss.detach()


def step_by_operators(language_model: LanguageModel, batch: BatchPair) -> torch.Tensor:
    """Return what `step` returns, computed without the C++ library."""
    with library.use_variant(library.NONE):
        return step(language_model, batch)


def batch_of(
    sentences: Sentences, batch_size: int, num_steps: int, num_words: int, device: str = "cpu"
) -> BatchPair:
    """Return a batch of random tokens and targets with `num_steps` (at most 20) time steps."""
    pairs = zip(sentences.tokens(2 * batch_size), sentences.tokens(2 * batch_size))
    words = [word for one, other in pairs for word in (one + other)[:num_steps]]
    types = sorted(set(words), key=lambda word: len(word.encode()))
    places = {word: place for place, word in enumerate(types)}
    tokens = torch.tensor([places[word] for word in words]).view(2, batch_size, num_steps)
    targets = torch.randint(0, num_words, (2, num_steps, batch_size))
    pair = BatchPair(batch_to_ids([types])[0], tokens.transpose(1, 2).contiguous(), targets)
    return pair.to(torch.device(device))


def run(rounds: int, clock: Clock) -> dict[str, Any]:
    sentences = Sentences()

    def batches() -> BatchPair:
        return batch_of(sentences, BATCH_SIZE, NUM_STEPS, NUM_WORDS)

    models = {
        "autograd": model(autograd=True),
        "ours": model(autograd=False),
        "ours, bfloat16": model(autograd=False, dtype="bfloat16"),
    }
    batch = batches()
    losses = [float(step(one, batch)) for one in models.values()]
    plain, ours, _ = ([one.grad for one in each.parameters()] for each in models.values())
    worst = max(float((one - other).abs().max()) for one, other in zip(plain, ours))
    flops = counted_flops(lambda: step(models["ours"], batch))

    def candidates() -> dict[str, Callable[[], Any]]:
        batch = batches()
        works = {
            name: functools.partial(step, language_model, batch)
            for name, language_model in models.items()
        }
        by_operators = functools.partial(step_by_operators, models["ours"], batch)
        return {
            "autograd": works.pop("autograd"),
            "ours, without the library": by_operators,
            **works,
        }

    found = in_turn(candidates, rounds, clock)
    rates = {dtype: MatrixRate(clock, dtype)() for dtype in (torch.float32, torch.bfloat16)}
    for name, one in found["candidates"].items():
        rate = rates[torch.bfloat16 if "bfloat16" in name else torch.float32]
        one["share"] = 1e-9 * flops / one["seconds"] / rate
    difference = {"loss": abs(losses[0] - losses[1]), "largest_gradient": worst}
    return {**found, "difference": difference}
