"""
Time of an NER epoch with ELMo's vectors from the cache, and with precomputed random vectors.

The config is `training_config/table1/ner_elmo.jsonnet` (crf_tagger, batches of 64, Adam, AllenNLP's
data loader and trainer) with random word vectors. One embedder is a frozen biLM with the sizes of
`original`, whose cache an earlier epoch has filled. The other returns slices of one random tensor
of the same width. Both read the same sentences in the same order.
"""

import functools
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.models import Model
from allennlp.modules.token_embedders import TokenEmbedder
from allennlp.training import Trainer

import elmo_plugin.plugin  # noqa: F401
from benchmarks.rounds import Clock, in_turn, seconds
from benchmarks.workload import Sentences

CONFIG = Path(__file__).parents[1] / "training_config/table1/ner_elmo.jsonnet"
NUM_SENTENCES = 512
CACHES = {"cache in memory": "memory", "cache in a directory": "{}/cache"}
TYPES = ("PER", "LOC", "ORG", "MISC")


@TokenEmbedder.register("ready_vectors", exist_ok=True)
class ReadyVectors(TokenEmbedder):
    """Embedder that returns a view of a random tensor, without computing or copying."""

    def __init__(self, batch_size: int, num_tokens: int, embedding_dim: int) -> None:
        super().__init__()
        self._vectors = torch.randn(batch_size, num_tokens, embedding_dim)

    def get_output_dim(self) -> int:
        return self._vectors.shape[-1]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._vectors[: tokens.shape[0], : tokens.shape[1]]


def write_sentences(path: Path) -> None:
    """Write sentences in CoNLL-2003 columns, in which one word in six is a name."""
    lines = []
    for words in Sentences().tokens(NUM_SENTENCES):
        for word in words:
            chosen = random.Random(word).randrange(6 * len(TYPES))
            tag = f"I-{TYPES[chosen]}" if chosen < len(TYPES) else "O"
            lines.append(f"{word} -X- -X- {tag}")
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def trainer(folder: Path, embedder: dict[str, Any], indexer: dict[str, Any]) -> Trainer:
    """Build the config's trainer with this embedder and indexer for ELMo, without validation."""
    data = folder / "train.txt"
    paths = dict.fromkeys(("NER_TRAIN_DATA_PATH", "NER_TEST_A_PATH", "NER_TEST_B_PATH"), str(data))
    config = Params.from_file(CONFIG, ext_vars=paths)
    embedders = config["model"]["text_field_embedder"]["token_embedders"]
    embedders["tokens"].pop("pretrained_file")
    embedders["elmo"] = embedder
    config["dataset_reader"]["token_indexers"]["elmo"] = indexer
    config["trainer"].pop("checkpointer")

    torch.manual_seed(0)
    loader = MultiProcessDataLoader.from_params(
        config["data_loader"],
        reader=DatasetReader.from_params(config["dataset_reader"]),
        data_path=config["train_data_path"],
    )
    vocabulary = Vocabulary.from_instances(loader.iter_instances())
    loader.index_with(vocabulary)
    return Trainer.from_params(
        config["trainer"],
        model=Model.from_params(config["model"], vocab=vocabulary),
        data_loader=loader,
        serialization_dir=str(folder),
        cuda_device=-1,
        run_confidence_checks=False,  # only `train`, which is not called, sets them up
    )


def epoch(trainer: Trainer, number: int) -> float:
    """Train one epoch, and return the mean loss of a batch."""
    random.seed(number)
    torch.manual_seed(number)
    trainer._batches_in_epoch_completed = 0  # `train` sets it, but cannot run a single epoch
    return trainer._train_epoch(number)["loss"]


def run(files: tuple[str, str], rounds: int, clock: Clock) -> dict[str, Any]:
    """
    Return the times of each embedder's epochs, and their ratios to the epoch with `ReadyVectors`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sentences(folder / "train.txt")
        ready = {"type": "ready_vectors", "batch_size": 64, "num_tokens": 30, "embedding_dim": 1024}
        trainers = {"ready vectors": trainer(folder, ready, {"type": "single_id"})}
        for key, cache in CACHES.items():
            elmo = {
                "type": "elmo_token_embedder",
                "options_file": files[0],
                "weight_file": files[1],
                "dropout": 0.0,
                "state": "reset",
                "cache": cache.format(folder),
            }
            trainers[key] = trainer(folder, elmo, {"type": "elmo_characters"})
        first = {key: seconds(lambda one=one: epoch(one, 0), clock)
                 for key, one in trainers.items()}  # fmt: skip
        numbers = itertools.count(1)
        losses: dict[str, float] = {}

        def candidates() -> dict[str, Callable[[], Any]]:
            number = next(numbers)

            def work(key: str) -> None:
                losses[key] = epoch(trainers[key], number)

            return {key: functools.partial(work, key) for key in trainers}

        found = in_turn(candidates, rounds, clock)
    for key, one in found["candidates"].items():
        # Invert the ratios, so that the time with `ReadyVectors` is the denominator.
        one.update(ratio=1 / one["ratio"], least=1 / one["most"], most=1 / one["least"])
        one["first_epoch"] = first[key]
    memory, directory = (losses[key] for key in CACHES)
    return {**found, "losses_differ": abs(memory - directory)}
