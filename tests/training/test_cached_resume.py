"""A run whose biLM keeps each sentence's layers in memory, stopped and gone on with."""

import random
import signal

import pytest
from interrupted_run import assert_same_end, send


@pytest.fixture
def config(config, tmp_path):
    """Sentences of many lengths: a stopped run reads them first in other batches."""
    rng = random.Random(1)
    for name, count in (("train", 32), ("dev", 8)):
        sentences = (["the", "dog", "sees", "rivers"] * rng.randrange(1, 8) for _ in range(count))
        (tmp_path / name).write_text(
            "".join(
                "\t".join(f"{word}{rng.randrange(9)}###N" for word in words) + "\n"
                for words in sentences
            )
        )
    config["dataset_reader"]["token_indexers"] = {"elmo": {"type": "elmo_characters"}}
    config["model"]["text_field_embedder"]["token_embedders"] = {
        "elmo": {
            "type": "elmo_token_embedder",
            "pretrained_file": "embedded",
            "state": "primed",
            "cache": "memory",
        }
    }
    config["model"]["encoder"]["input_size"] = 512
    return config


@pytest.mark.slow
@pytest.mark.parametrize("at", [(0, 2), (1, 3)])
def test_goes_on_as_if_never_stopped(train, tmp_path, at):
    """What is kept of a sentence does not depend on the batch that it was first read in."""
    train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", at, send(signal.SIGINT))
    train(tmp_path / "run")
    assert_same_end(tmp_path / "run", tmp_path / "whole")
