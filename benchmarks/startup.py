"""Seconds from the start of a process to the first vector, and to the end of `allennlp --help`."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIES = 3
FIRST_VECTOR = (
    "from elmo_plugin import ElmoEmbedder; ElmoEmbedder().embed_sentence('One sentence .'.split())"
)
# Arguments of `python`, and whether to run it in the repository, where AllenNLP finds the plugin.
COMMANDS = {
    "import torch": (["-c", "import torch"], True),
    "first vector, embedded biLM": (["-c", FIRST_VECTOR], True),
    "allennlp --help": (["-m", "allennlp", "--help"], False),
    "allennlp --help, with the plugin": (["-m", "allennlp", "--help"], True),
}


def run(threads: int, tries: int = TRIES) -> dict[str, float]:
    """Return the seconds that each command takes, as the minimum of a few runs."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    found = {}
    with tempfile.TemporaryDirectory() as elsewhere:
        for name, (command, here) in COMMANDS.items():
            times = []
            for _ in range(tries):
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, *command], check=True, capture_output=True,
                    cwd=ROOT if here else elsewhere, env=environment,
                )  # fmt: skip
                times.append(time.perf_counter() - start)
            found[name] = min(times)
    return found
