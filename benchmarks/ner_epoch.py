"""
An epoch of NER with ELMo from the cache, beside one whose ELMo vectors cost nothing.

`training_config/table1/ner_elmo.jsonnet` as it stands (crf_tagger, batches of 64, Adam,
AllenNLP's data loader and trainer), but for GloVe, which is drawn at random, and for the embedder:
a frozen biLM of Original shapes with a cache, after the epoch that filled it, or slices of a tensor
of the same width made once. Each has the indexer it needs; all read the same sentences in the same
order.
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
    """Random vectors, as many as tokens: a view, nothing computed, nothing copied."""

    def __init__(self, batch_size: int, num_tokens: int, embedding_dim: int) -> None:
        super().__init__()
        self._vectors = torch.randn(batch_size, num_tokens, embedding_dim)

    def get_output_dim(self) -> int:
        return self._vectors.shape[-1]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._vectors[: tokens.shape[0], : tokens.shape[1]]


def write_sentences(path: Path) -> None:
    """In CoNLL-2003's columns; one word in six is a name, always of the same type."""
    lines = []
    for words in Sentences().tokens(NUM_SENTENCES):
        for word in words:
            chosen = random.Random(word).randrange(6 * len(TYPES))
            tag = f"I-{TYPES[chosen]}" if chosen < len(TYPES) else "O"
            lines.append(f"{word} -X- -X- {tag}")
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def trainer(folder: Path, embedder: dict[str, Any], indexer: dict[str, Any]) -> Trainer:
    """What `allennlp train` makes of the config with this embedder, short of a validation."""
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
        run_confidence_checks=False,  # of a whole training
    )


def epoch(trainer: Trainer, number: int) -> float:
    """The mean loss of a batch."""
    random.seed(number)
    torch.manual_seed(number)
    trainer._batches_in_epoch_completed = 0  # as `train` does, which knows no single epoch
    return trainer._train_epoch(number)["loss"]


def run(files: tuple[str, str], rounds: int, clock: Clock) -> dict[str, Any]:
    """`files` are the biLM's. Ratios: an epoch's time to that with ready vectors."""
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

        def contestants() -> dict[str, Callable[[], Any]]:
            number = next(numbers)

            def work(key: str) -> None:
                losses[key] = epoch(trainers[key], number)

            return {key: functools.partial(work, key) for key in trainers}

        found = in_turn(contestants, rounds, clock)
    for key, one in found["contestants"].items():
        # Here the longer epoch is the numerator.
        one.update(ratio=1 / one["ratio"], least=1 / one["most"], most=1 / one["least"])
        one["first_epoch"] = first[key]
    memory, directory = (losses[key] for key in CACHES)
    return {**found, "losses_differ": abs(memory - directory)}
