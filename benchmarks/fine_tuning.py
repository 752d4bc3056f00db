"""
A training step of a tagger whose biLM trains, in a process of its own.

    python -m benchmarks.fine_tuning stock|ours OPTIONS WEIGHTS

ELMo with `requires_grad`, a linear layer, cross entropy, Adam; 32 sentences of 10 to 30 tokens, the
same for both. Prints JSON: seconds of a step (the median of a few, after one to warm up), its loss,
and megabytes (2^20 bytes): before there is a model, and the peak from then on. AllenNLP is imported
in both.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from allennlp.modules.elmo import Elmo as StockElmo

from benchmarks.memory import status
from benchmarks.workload import Sentences
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo

BATCH_SIZE, STEPS, NUM_TAGS = 32, 3, 9
ROOT = Path(__file__).parents[1]


def measure(which: str, files: tuple[str, str], threads: int) -> dict[str, Any]:
    """The measurement in a new process."""
    command = [sys.executable, "-m", "benchmarks.fine_tuning", which, *files]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    which, *files = sys.argv[1:]
    # A first step of any optimizer imports modules of PyTorch.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    sentences = Sentences()
    before = status("VmRSS")
    # The kernel's high-water mark starts again here.
    Path("/proc/self/clear_refs").write_text("5")
    torch.manual_seed(0)
    kind: Any = StockElmo if which == "stock" else Elmo
    elmo = kind(*files, 1, dropout=0.0, requires_grad=True).train()
    torch.manual_seed(0)  # each drew as many numbers as its own parameters take
    tagger = torch.nn.Linear(elmo.get_output_dim(), NUM_TAGS)
    parameters = [*elmo.parameters(), *tagger.parameters()]
    optimizer = torch.optim.Adam([one for one in parameters if one.requires_grad], lr=1e-4)
    times, losses = [], []
    for _ in range(1 + STEPS):
        ids = batch_to_ids(sentences.tokens(BATCH_SIZE))
        start = time.perf_counter()
        optimizer.zero_grad()  # before the pass, as AllenNLP's trainer does
        output = elmo(ids)
        logits = tagger(output["elmo_representations"][0])
        # Tags that can be learned: by the tokens' first letters.
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
