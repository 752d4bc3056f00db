"""Benchmark workload: released model sizes, random weights, Zipf-distributed words."""

import itertools
import json
import random
from pathlib import Path

import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.options import ElmoOptions

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
SHAPES = {
    "original": ElmoOptions(512, 4096, 2, 16, FILTERS, 2),
    "small": ElmoOptions(128, 1024, 2, 16, FILTERS, 1),
}
NUM_WORDS = 20_000
LETTERS = "etaoinshrdlcumwfgypbvkjxqz"


def write_weights(shape: str, folder: Path) -> tuple[str, str]:
    """Write random weights, with a fixed seed; return the paths of the options and weight files."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    options, weights = folder / f"{shape}.json", folder / f"{shape}.hdf5"
    options.write_text(json.dumps(options_dict(SHAPES[shape])), encoding="utf-8")
    save_weights(BiLm(SHAPES[shape]), weights)
    return str(options), str(weights)


class Sentences:
    """Batches of sentences of 10 to 30 tokens; frequent words are short, as in English."""

    def __init__(self, seed: int = 0, num_words: int = NUM_WORDS) -> None:
        self._random = random.Random(seed)
        lengths = [
            max(1, round(self._random.gauss(3.5 if rank < 200 else 7.5, 2.0)))
            for rank in range(num_words)
        ]
        self.words = ["".join(self._random.choices(LETTERS, k=length)) for length in lengths]
        self._weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(num_words)))

    def tokens(self, batch_size: int) -> list[list[str]]:
        return [
            self._random.choices(
                self.words, cum_weights=self._weights, k=self._random.randint(10, 30)
            )
            for _ in range(batch_size)
        ]

    def batch(self, batch_size: int) -> torch.Tensor:
        return batch_to_ids(self.tokens(batch_size))
