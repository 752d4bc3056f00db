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
import sys
from pathlib import Path
from typing import Any

from benchmarks.processes import in_process, status

BATCHES = 3
BATCH_SIZE = 64
# The peak varies by up to a tenth between processes; the result is the median of several.
PROCESSES = 3
# Dtypes measured with AllenNLP imported, and without.
DTYPES = {
    "quick": (("float32",), ("float32", "int8")),
    "full": (("float32", "int8"), ("float32", "float16", "bfloat16", "int8")),
}


def run(files: tuple[str, str], quick: bool) -> dict[str, Any]:
    """Measure memory in new processes, one after another; return medians in MB."""
    with_allennlp, alone = DTYPES["quick" if quick else "full"]
    cases = {"stock": ["stock"], **{dtype: [dtype] for dtype in alone}}
    cases.update({f"{dtype}, AllenNLP imported": [dtype, "--allennlp"] for dtype in with_allennlp})
    results = {}
    for name, (which, *flags) in cases.items():
        arguments = which, *files, BATCH_SIZE, *flags
        found = [in_process("memory", *arguments) for _ in range(1 if quick else PROCESSES)]
        results[name] = {key: statistics.median(one[key] for one in found) for key in found[0]}
    return results


def main() -> None:
    which, options, weights, batch_size, *with_allennlp = sys.argv[1:]
    if which == "stock" or with_allennlp:
        import allennlp.modules.elmo  # noqa: F401

    from benchmarks.inference import elmo_of, mix
    from benchmarks.workload import Sentences

    before = status("VmRSS")
    elmo = elmo_of(which, (options, weights))
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
