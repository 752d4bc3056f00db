"""
Speed and peak memory of the model `coref` at the paper's sizes, with one thread.

    python -m benchmarks.coref                     # every measurement, each in a new process
    python -m benchmarks.coref step|concatenated|predict NUM_TOKENS [STEPS]      # one measurement

`step` is a training step (loss, gradients, clipping, Adam) on a document of NUM_TOKENS random words
in sentences of 20. `concatenated` is the same step, but scores pairs as allennlp-models does, with
the concatenated vectors of all pairs in memory. `predict` is a forward pass without gradients.
Word vectors (500 dimensions) and ELMo's (1024) are random numbers, so that the biLM takes no time.

The first command prints a table. The second prints JSON: CPU seconds of a step (median of a few,
after a warm-up step) and the loss. Memory is in MB (2^20 bytes), before the model is built and at
the peak.
"""

import json
import random
import statistics
import sys
import time
from typing import Any
from unittest import mock

import torch
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.modules import FeedForward, TextFieldEmbedder
from allennlp.nn import Activation

from benchmarks.processes import in_process, memory_before, status
from elmo_plugin.models import coref
from elmo_plugin.modules.coref.pairs import Antecedents
from elmo_plugin.modules.coupled_lstm import CoupledLstm

WORD_DIM, ELMO_DIM, HIDDEN, FEATURE = 500, 1024, 200, 20
SPAN_DIM = 4 * HIDDEN + FEATURE + WORD_DIM
SENTENCE, WIDTH = 20, 10
STEPS = 3


class Given(TextFieldEmbedder):
    """Embedder that returns its input, so that a batch contains precomputed vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, text: TextFieldTensors, **_: Any) -> torch.Tensor:
        return text["words"]["vectors"]

    def get_output_dim(self) -> int:
        return self.dim


class GivenElmo(torch.nn.Module):
    """Stand-in for `Elmo` that returns its input: batches hold vectors, not character ids."""

    num_output_representations = 1

    def forward(self, vectors: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        return {"elmo_representations": [vectors]}

    def get_output_dim(self) -> int:
        return ELMO_DIM


def feedforward(input_dim: int) -> FeedForward:
    return FeedForward(input_dim, 2, 150, Activation.by_name("relu")(), 0.2)


def model() -> coref.CoreferenceResolver:
    torch.manual_seed(1)
    return coref.CoreferenceResolver(
        Vocabulary(),
        Given(WORD_DIM),
        CoupledLstm(WORD_DIM + ELMO_DIM, HIDDEN, 0.2),
        feedforward(SPAN_DIM),
        feedforward(3 * SPAN_DIM + 3 * FEATURE),
        FEATURE,
        WIDTH,
        0.4,
        250,
        lexical_dropout=0.5,
        elmo=GivenElmo(),  # type: ignore[arg-type]
        use_input_elmo=True,
        encode_by_sentence=True,
        use_speakers=True,
        genres=["nw"],
        head_scores_from_context=True,
        allow_crossing_spans=False,
        context_dropout=0.2,
        feature_dropout=0.2,
    )


def document(num_tokens: int) -> dict[str, Any]:
    draw = random.Random(1)
    torch.manual_seed(2)
    lengths = [SENTENCE] * (num_tokens // SENTENCE)
    num_tokens = sum(lengths)
    spans = [
        (start, end)
        for start in range(num_tokens)
        for end in range(start, min(start + WIDTH, (start // SENTENCE + 1) * SENTENCE))
    ]
    chosen = draw.sample(range(len(spans)), num_tokens // 8)
    labels = torch.full((1, len(spans)), -1)
    labels[0, chosen] = torch.randint(num_tokens // 32, (len(chosen),))
    metadata = {
        "original_text": ["w"] * num_tokens,
        "clusters": [],
        "sentence_lengths": lengths,
        "speakers": [draw.choice("ab") for _ in range(num_tokens)],
        "genre": "nw",
    }
    return {
        "text": {
            "words": {"vectors": torch.randn(1, num_tokens, WORD_DIM)},
            "elmo": {"elmo_tokens": torch.randn(1, num_tokens, ELMO_DIM)},
            # AllenNLP computes the token mask from this tensor.
            "ids": {"tokens": torch.ones(1, num_tokens, dtype=torch.long)},
        },
        "spans": torch.tensor([spans]),
        "span_labels": labels,
        "metadata": [metadata],
    }


def concatenated(
    embeddings: torch.Tensor,
    antecedents: Antecedents,
    features: torch.Tensor,
    feedforward: FeedForward,
    scorer: torch.nn.Linear,
) -> torch.Tensor:
    """Compute `pair_scores` from the concatenated vectors of all pairs, padding included."""
    mask = antecedents.mask
    left = embeddings.unsqueeze(2).expand(-1, -1, mask.size(2), -1)
    rows = torch.arange(len(embeddings)).view(-1, 1, 1)
    right = embeddings[rows, antecedents.indices]
    phi = features.new_zeros(*mask.shape, features.size(-1)).masked_scatter(
        mask.unsqueeze(-1), features
    )
    vectors = torch.cat([left, right, left * right, phi], dim=-1)
    scores = antecedents.scores + scorer(feedforward(vectors)).squeeze(-1)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.cat([scores.new_zeros(*mask.shape[:2], 1), scores], dim=2)


def concatenate_pairs() -> Any:
    """Return the patch with which the model calls `concatenated`, not `pair_scores`."""
    return mock.patch.object(coref, "pair_scores", concatenated)


def steps(kind: str, num_tokens: int, count: int) -> tuple[list[float], float]:
    resolver = model().train(kind != "predict")
    batch = document(num_tokens)
    optimizer = torch.optim.Adam(resolver.parameters())
    seconds = []
    for _ in range(1 + count):
        start = time.process_time()
        torch.manual_seed(3)
        with torch.set_grad_enabled(kind != "predict"):
            loss = resolver(**batch)["loss"]
        if kind != "predict":
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(resolver.parameters(), 5.0)
            optimizer.step()
        seconds.append(time.process_time() - start)
    return seconds[1:], loss.item()


def measure(kind: str, num_tokens: int, count: int = STEPS) -> dict[str, Any]:
    """Measure `count` steps of `step`, `concatenated` or `predict` in a new process."""
    return in_process("coref", kind, num_tokens, count)


def main() -> None:
    if len(sys.argv) == 1:
        for kind, num_tokens in (("step", 1000), ("concatenated", 1000), ("predict", 5000)):
            print(f"{kind}, {num_tokens} tokens: {measure(kind, num_tokens)}", flush=True)
        return
    kind, num_tokens = sys.argv[1], int(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else STEPS
    torch.set_num_threads(1)
    if kind == "concatenated":
        concatenate_pairs().start()
    before = memory_before()
    seconds, loss = steps(kind, num_tokens, count)
    found = {"seconds": statistics.median(seconds), "least": min(seconds), "loss": loss}
    print(json.dumps({**found, "before": before, "peak": status("VmHWM")}))


if __name__ == "__main__":
    main()
