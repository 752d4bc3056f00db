"""A small run for tests of stopping and going on: AllenNLP's own tagger, data written here."""

import random
import signal

import pytest
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import prepare_environment
from interrupted_run import NUM_BATCHES, NUM_EPOCHS, AtBatch

import elmo_plugin.plugin  # noqa: F401


@pytest.fixture(autouse=True)
def listen_to_ctrl_c():
    """A test run in the background ignores it, and so would the runs in here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def config(tmp_path):
    rng = random.Random(0)
    words = {"D": ["the", "a"], "N": ["dog", "river", "stone"], "V": ["sees", "takes"]}
    for name, count in (("train", 32), ("dev", 8)):
        lines = [
            "\t".join(f"{rng.choice(words[tag])}###{tag}" for tag in "DNVDN"[rng.randrange(2) :])
            for _ in range(count)
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return {
        "dataset_reader": {
            "type": "sequence_tagging",
            "token_indexers": {"tokens": {"type": "single_id"}},
        },
        "train_data_path": str(tmp_path / "train"),
        "validation_data_path": str(tmp_path / "dev"),
        "model": {
            "type": "simple_tagger",
            "text_field_embedder": {
                "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}
            },
            "encoder": {
                "type": "lstm",
                "input_size": 4,
                "hidden_size": 4,
                "num_layers": 2,
                "dropout": 0.5,
            },
        },
        "data_loader": {"batch_size": 32 // NUM_BATCHES, "shuffle": True},
        "trainer": {
            "optimizer": {"type": "adam", "lr": 0.03},
            "num_epochs": NUM_EPOCHS,
            "cuda_device": -1,
            "callbacks": ["at_batch"],
        },
    }


@pytest.fixture
def train(config):
    """Runs, and goes on from whatever checkpoints the directory holds, as --recover does."""

    def train(directory, at=None, action=None, **trainer):
        directory.mkdir(exist_ok=True)
        AtBatch.point, AtBatch.action = at, action
        params = Params({**config, "trainer": {**config["trainer"], **trainer}}).duplicate()
        prepare_environment(params)
        return TrainModel.from_params(
            params=params, serialization_dir=str(directory), local_rank=0
        ).run()

    yield train
    AtBatch.point = None


@pytest.fixture
def undisturbed(train, tmp_path):
    directory = tmp_path / "undisturbed"
    return directory, train(directory)
