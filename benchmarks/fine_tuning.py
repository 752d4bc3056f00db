"""
Speed and memory of a training step of a tagger that also trains its biLM.

    python -m benchmarks.fine_tuning stock|ours OPTIONS WEIGHTS

The tagger is AllenNLP's or our ELMo with `requires_grad`, a linear layer and cross-entropy. It is
trained with Adam on batches of 32 sentences of 10 to 30 tokens. The program prints JSON: seconds of
a step (median of a few, after one warm-up step), losses, and memory in MB (2^20 bytes). `before` is
the memory before the model is built, `peak` the maximum after that. AllenNLP is always imported.
"""

import json
import statistics
import sys
import time
from typing import Any

import torch
from allennlp.modules.elmo import Elmo as StockElmo

from benchmarks.processes import in_process, memory_before, status
from benchmarks.workload import Sentences
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo

BATCH_SIZE, STEPS, NUM_TAGS = 32, 3, 9


def measure(which: str, files: tuple[str, str], threads: int) -> dict[str, Any]:
    """Measure `which` (`"ours"` or `"stock"`) in a new process, and return what it prints."""
    return in_process("fine_tuning", which, *files, threads=threads)


def main() -> None:
    which, *files = sys.argv[1:]
    sentences = Sentences()
    before = memory_before()
    torch.manual_seed(0)
    kind: Any = StockElmo if which == "stock" else Elmo
    elmo = kind(*files, 1, dropout=0.0, requires_grad=True).train()
    torch.manual_seed(0)  # seed again: the two ELMos draw different amounts of numbers
    tagger = torch.nn.Linear(elmo.get_output_dim(), NUM_TAGS)
    parameters = [*elmo.parameters(), *tagger.parameters()]
    optimizer = torch.optim.Adam([one for one in parameters if one.requires_grad], lr=1e-4)
    times, losses = [], []
    for _ in range(1 + STEPS):
        ids = batch_to_ids(sentences.tokens(BATCH_SIZE))
        start = time.perf_counter()
        optimizer.zero_grad()  # do this before the forward pass, like AllenNLP's trainer
        output = elmo(ids)
        logits = tagger(output["elmo_representations"][0])
        # Tags depend on the tokens' first letters, so that they can be learned.
        tags = (ids[..., 1] % NUM_TAGS)[output["mask"]]
        loss = torch.nn.functional.cross_entropy(logits[output["mask"]], tags)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    seconds = statistics.median(times[1:])
    print(
        json.dumps(
            {"seconds": seconds, "losses": losses, "before": before, "peak": status("VmHWM")}
        )
    )


if __name__ == "__main__":
    main()
