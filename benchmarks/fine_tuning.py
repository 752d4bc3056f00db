"""
Speed and memory of a training step of a tagger that also trains its biLM.

    python -m benchmarks.fine_tuning stock|ours|operators OPTIONS WEIGHTS STEPS

`operators` is ours without the C++ library. The tagger is AllenNLP's or our ELMo with
`requires_grad`, a linear layer and cross-entropy. It is trained with Adam on batches of 32
sentences of 10 to 30 tokens. The program prints JSON: seconds of a step (median of a few, after one
warm-up step) and of its forward and backward pass, losses, and memory in MB (2^20 bytes). `before`
is the memory before the model is built, `peak` the maximum after that. AllenNLP is always imported.
For `ours` it adds the GFLOP of both passes in the plain definition, and the rate of `torch.mm`.
"""

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from allennlp.modules.elmo import Elmo as StockElmo

from benchmarks.processes import in_process, memory_before, status
from benchmarks.rounds import MatrixRate, counted_flops
from benchmarks.workload import Sentences
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.use.elmo import Elmo

BATCH_SIZE, STEPS, NUM_TAGS = 32, 3, 9
CANDIDATES = ("stock", "operators", "ours")


def run(files: tuple[str, str], threads: int, steps: int = STEPS) -> dict[str, Any]:
    """
    Measure each of `CANDIDATES` in a new process; return what they print. `share` is that of the
    product rate: the products of the plain definition over the time of both passes, relative to
    the rate of `torch.mm`.
    """
    found = {
        which: in_process("fine_tuning", which, *files, steps, threads=threads)
        for which in CANDIDATES
    }
    for one in found.values():
        one["share"] = found["ours"]["gflop"] / one["passes"] / found["ours"]["gflops"]
    return found


class Tagger:
    """Tagger whose biLM trains, with its optimizer; `kind` is a class of ELMo."""

    def __init__(self, kind: Any, files: Sequence[str]) -> None:
        torch.manual_seed(0)
        self.elmo = kind(*files, 1, dropout=0.0, requires_grad=True).train()
        torch.manual_seed(0)  # seed again: the two ELMos draw different amounts of numbers
        self._layer = torch.nn.Linear(self.elmo.get_output_dim(), NUM_TAGS)
        parameters = [*self.elmo.parameters(), *self._layer.parameters()]
        trained = [one for one in parameters if one.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=1e-4)

    def passes(self, ids: torch.Tensor) -> float:
        """Run forward and backward pass; return the loss."""
        output = self.elmo(ids)
        logits = self._layer(output["elmo_representations"][0])
        # Tags depend on the tokens' first letters, so that they can be learned.
        tags = (ids[..., 1] % NUM_TAGS)[output["mask"]]
        loss = torch.nn.functional.cross_entropy(logits[output["mask"]], tags)
        loss.backward()
        return loss.item()


def main() -> None:
    which, *files, steps = sys.argv[1:]
    sentences = Sentences()
    before = memory_before()
    with library.use_variant(library.NONE) if which == "operators" else contextlib.nullcontext():
        tagger = Tagger(StockElmo if which == "stock" else Elmo, files)
        times, passes, losses = [], [], []
        for _ in range(1 + int(steps)):
            ids = sentences.batch(BATCH_SIZE)
            start = time.perf_counter()
            tagger.optimizer.zero_grad()  # before the forward pass, like AllenNLP's trainer
            losses.append(tagger.passes(ids))
            passes.append(time.perf_counter() - start)
            tagger.optimizer.step()
            times.append(time.perf_counter() - start)
    found = {
        "seconds": statistics.median(times[1:]), "passes": statistics.median(passes[1:]),
        "losses": losses, "before": before, "peak": status("VmHWM"),
    }  # fmt: skip
    if which == "ours":
        found["gflop"] = 1e-9 * counted_flops(lambda: tagger.passes(ids))
        found["gflops"] = MatrixRate(time.perf_counter)()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
