"""Recovered runs report what a run reports that was left alone."""

import json
import signal

import pytest
from allennlp.common.util import SigTermReceived
from interrupted_run import assert_same_end, names, send

from tests.cases import first_quick

# Wall clock and memory are each run's own.
OWN = ("duration", "memory", "training_start", "training_epochs")


def reproducible(metrics):
    return {key: value for key, value in metrics.items() if not any(own in key for own in OWN)}


@pytest.fixture
def config(config):
    config["model"]["regularizer"] = {"regexes": [["weight", {"type": "l2", "alpha": 0.01}]]}
    return config


@first_quick("at", [(1, 3), (0, "validation"), (0, 1), (0, 4), (2, 4)], count=2)
def test_of_a_stop_within_an_epoch(train, tmp_path, undisturbed, at):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", at, send(signal.SIGINT))
    metrics = train(tmp_path / "run")
    assert {"training_accuracy", "training_reg_loss"} <= metrics.keys()
    assert reproducible(metrics) == reproducible(undisturbed[1])
    for epoch in range(at[0], 3):
        name = f"metrics_epoch_{epoch}.json"
        found, wanted = (
            reproducible(json.loads((folder / name).read_text()))
            for folder in (tmp_path / "run", undisturbed[0])
        )
        assert found == wanted, name


def test_of_a_run_with_nothing_left_to_do(train, tmp_path, undisturbed):
    train(tmp_path / "run")
    assert reproducible(train(tmp_path / "run")) == reproducible(undisturbed[1])


def test_of_a_run_that_had_ended_by_its_patience(train, tmp_path):
    more = {
        "patience": 1,
        "validation_metric": "+accuracy",
        "optimizer": {"type": "adam", "lr": 0.0},  # nothing is learnt
        "num_epochs": 5,
    }
    run = tmp_path / "run"
    whole = train(run, **more)
    assert whole["epoch"] == 1
    left = names(run)
    assert reproducible(train(run, **more)) == reproducible(whole)
    assert names(run) == left
    # More patience: it goes on.
    assert train(run, **{**more, "patience": 3})["epoch"] == 3


@first_quick("num_gradient_accumulation_steps", [2, 1])
def test_of_accumulated_batches(train, tmp_path, num_gradient_accumulation_steps):
    more = {"num_gradient_accumulation_steps": num_gradient_accumulation_steps}
    whole = train(tmp_path / "whole", **more)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", (1, 1), send(signal.SIGINT), **more)
    assert reproducible(train(tmp_path / "run", **more)) == reproducible(whole)


@pytest.mark.parametrize(
    ("number", "raised", "moving_average"),
    [
        (signal.SIGINT, KeyboardInterrupt, None),
        (signal.SIGTERM, SigTermReceived, {"type": "exponential", "decay": 0.5}),
    ],
)
def test_a_signal_in_a_validation_is_acted_on_in_it(
    train, config, tmp_path, number, raised, moving_average
):
    """After the first of eight batches: the checkpoint is of the end of training."""
    config["validation_data_loader"] = {"batch_size": 1, "shuffle": True}
    more = {} if moving_average is None else {"moving_average": moving_average}
    whole = train(tmp_path / "whole", **more)
    run = tmp_path / "run"
    with pytest.raises(raised):
        train(run, (1, "validation"), send(number), **more)
    assert names(run)[-1] == "training_state_e1_b4.th"
    assert not (run / "metrics_epoch_1.json").exists()
    assert reproducible(train(run, **more)) == reproducible(whole)
    assert_same_end(run, tmp_path / "whole")
