"""A step of pretraining, against autograd through the recurrence with hoisted input products."""

from typing import Any, Callable, Dict

import torch

from benchmarks.rounds import Clock, in_turn
from benchmarks.workload import FILTERS, Sentences
from elmo_plugin.bilm.bilm import BiLm
from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.bilm.lstm import LstmCellWithProjection
from elmo_plugin.bilm.options import ElmoOptions
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.streams import BatchPair, StreamBatch

BATCH_SIZE, NUM_STEPS = 128, 20
NUM_WORDS, NUM_SAMPLES = 50_000, 2_048
OPTIONS = ElmoOptions(128, 512, 2, 16, FILTERS[:5], 1)


def by_autograd(cell: LstmCellWithProjection) -> Callable[..., Any]:
    """What `LstmCellWithProjection.forward` does, left to autograd."""

    def forward(inputs: torch.Tensor, batch_sizes: Any, hidden: Any, memory: Any) -> Any:
        hoisted = cell.input_linearity(inputs).split(list(batch_sizes))
        outputs = []
        for products in hoisted:
            gates = products + cell.state_linearity(hidden)
            i, f, g, o = gates.chunk(4, dim=1)
            memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
            memory = memory.clamp(-cell.cell_clip, cell.cell_clip)
            hidden = cell.state_projection(torch.sigmoid(o) * torch.tanh(memory))
            hidden = hidden.clamp(-cell.projection_clip, cell.projection_clip)
            outputs.append(hidden)
        return torch.cat(outputs), hidden.detach(), memory.detach()

    return forward


def model(autograd: bool) -> LanguageModel:
    torch.manual_seed(0)
    language_model = LanguageModel(
        BiLm(OPTIONS), WordSoftmax(NUM_WORDS, OPTIONS.projection_dim, NUM_SAMPLES), dropout=0.0
    )
    if autograd:
        for module in language_model.modules():
            if isinstance(module, LstmCellWithProjection):
                module.forward = by_autograd(module)  # type: ignore[method-assign]
    return language_model


def step(language_model: LanguageModel, batch: BatchPair) -> torch.Tensor:
    """The loss; gradients are then in the parameters."""
    torch.manual_seed(1)
    language_model.zero_grad()
    loss = language_model(batch).loss
    loss.backward()
    return loss.detach()


def run(rounds: int, clock: Clock) -> Dict[str, Any]:
    sentences = Sentences()

    def batches() -> BatchPair:
        halves = []
        for _ in range(2):
            pairs = zip(sentences.tokens(BATCH_SIZE), sentences.tokens(BATCH_SIZE))
            words = [(one + other)[:NUM_STEPS] for one, other in pairs]
            targets = torch.randint(0, NUM_WORDS, (BATCH_SIZE, NUM_STEPS))
            halves.append(StreamBatch(batch_to_ids(words), targets, None, []))
        return BatchPair(*halves)

    plain, ours = model(autograd=True), model(autograd=False)
    batch = batches()
    difference = float((step(plain, batch) - step(ours, batch)).abs())
    gradients = zip(plain.parameters(), ours.parameters())
    worst = max(float((a.grad - b.grad).abs().max()) for a, b in gradients)

    def contestants() -> Dict[str, Callable[[], Any]]:
        batch = batches()
        return {"autograd": lambda: step(plain, batch), "ours": lambda: step(ours, batch)}

    found = in_turn(contestants, rounds, clock)
    return {**found, "difference": {"loss": difference, "largest_gradient": worst}}
