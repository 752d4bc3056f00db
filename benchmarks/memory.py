"""
Peak memory of a frozen ELMo that runs on batches, AllenNLP's (`stock`) or ours in one dtype.

    python -m benchmarks.memory stock|float32|bfloat16|int8 OPTIONS WEIGHTS BATCH_SIZE [--allennlp]

The program prints resident memory in MB (2^20 bytes) as JSON: after the imports, the peak while
batches run, and the peak of the whole process, which includes loading. Our ELMo needs only PyTorch;
with `--allennlp`, AllenNLP is imported too, as in a training run. The figures come from /proc,
since `ru_maxrss` would include memory of the parent process.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

BATCHES = 3
# The peak varies by up to a tenth between processes; the result is the median of several.
PROCESSES = 3


def measure(
    which: str, files: tuple[str, str], batch_size: int, allennlp: bool = False
) -> dict[str, float]:
    """Measure memory in several new processes, one after another; return medians in MB."""
    command = [sys.executable, "-m", "benchmarks.memory", which, *files, str(batch_size)]
    command += ["--allennlp"] * allennlp
    found = []
    for _ in range(PROCESSES):
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(output.splitlines()[-1]))
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def status(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/self/status has no {key}")


def main() -> None:
    which, options, weights, batch_size, *with_allennlp = sys.argv[1:]
    if which == "stock" or with_allennlp:
        from allennlp.modules.elmo import Elmo as StockElmo

    from benchmarks.inference import mix, ours
    from benchmarks.workload import Sentences

    before = status("VmRSS")
    elmo: Any
    if which == "stock":
        elmo = StockElmo(options, weights, 1, dropout=0.0).eval()
    else:
        elmo = ours((options, weights), None if which == "float32" else which)
    sentences = Sentences()
    loading = status("VmHWM")
    # Reset the peak memory that Linux stores, so that VmHWM leaves out what came before.
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(BATCHES):
        mix(elmo, sentences.batch(int(batch_size)))
    running = status("VmHWM")
    whole = max(loading, running)
    print(json.dumps({"before": before, "running": running, "whole": whole}))


if __name__ == "__main__":
    main()
