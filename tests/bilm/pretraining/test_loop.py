"""The loop by itself; `tests/training` has it behind both doors, stopped and in many processes."""

import json
import math
import sys
from unittest.mock import Mock

import pytest
import torch

from elmo_plugin.bilm.kernels import machine
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.checkpoints import CheckpointSettings
from elmo_plugin.bilm.pretraining.config import LOOP_KEYS, LoopSettings, make_settings
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.loop import Pretraining
from elmo_plugin.bilm.pretraining.optimization import WarmupCosine
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary

WORDS = WordVocabulary([*SPECIAL_WORDS, *"abcd"])


@pytest.fixture
def paths(tmp_path):
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name} {name}\n" * 10)
    return sorted(tmp_path.glob("*.txt"))


@pytest.fixture
def pretraining(paths, tmp_path):
    def build(name="run", settings=None, heldout=(), **text):
        torch.manual_seed(0)
        model = LanguageModel(BiLm(ElmoOptions(4, 4, 1, 2, ((1, 2),), 1)), WordSoftmax(7, 4))
        settings = {"optimizer": {"type": "sgd", "lr": 0.1}, "num_epochs": 2, **(settings or {})}
        (directory := tmp_path / name).mkdir(exist_ok=True)
        train = StreamLoader(paths, 8, **{"num_steps": 3, "batches_per_epoch": 4, **text})
        held = {"batch_size": 4, "num_steps": 3, "shuffle": False, **dict(heldout or ())}
        held = None if heldout is None else StreamLoader(paths, **held)
        return Pretraining(model, WORDS, train, held, directory, LoopSettings(**settings))

    return build


def at_rates(run, rate):
    """The run's steps, by number, at rates of their own."""
    step = run.stepper.step

    def step_at_a_rate(pairs, number, *others, **more):
        run.stepper.rates = [rate(number)]
        return step(pairs, number, *others, **more)

    run.stepper.step = step_at_a_rate
    return run


def saved(run):
    return sorted(path.name for path in run.files.directory.glob("checkpoint_*"))


@pytest.mark.parametrize(
    ("settings", "text", "steps", "message"),
    [
        (
            {"optimizer": {"type": "sgd", "lr": math.inf}},
            {},
            1,
            r"loss is nan at step 2, .*read from .*/[a-d]\.txt:\d+",
        ),
        (
            {"optimizer": {"type": "sgd", "lr": 1e38}},
            {"batches_per_epoch": 1},
            1,
            "held-out loss is nan, expected a finite number",
        ),
        (
            {"gradient_scale": math.inf, "grad_norm": 1.0},
            {},
            0,
            "norm of the gradients is nan at step 1",
        ),
        (
            {"frozen_steps": 8},
            {},
            0,
            "frozen_steps is 8, so the biLM would never be trained; the run has",
        ),
        (
            {"learning_rate_scheduler": WarmupCosine(warmup_steps=8)},
            {},
            0,
            "8 warmup_steps and 0 constant_steps, so the learning rate would never fall; the run",
        ),
        # Limits of the training text are not those of the held-out text.
        *(
            (
                {},
                {"heldout": {"batch_size": 100, **one}},
                0,
                r"a\.txt and more holds 120 tokens, ex",
            )
            for one in ({}, {"num_tokens": 99, "batches_per_epoch": 9})
        ),
    ],
)
def test_what_stops_the_loop_is_named_and_nothing_is_saved(
    pretraining, settings, text, steps, message
):
    run = pretraining(settings=settings, **text)
    run.on_step = (made := []).append
    with pytest.raises(ValueError, match=message):
        run.run()
    assert len(made) == steps
    assert run.files.newest(clean=True) is None
    assert not (run.files.directory / "weights.hdf5").exists()


def test_a_run_resumes_with_the_same_text_and_words_only(pretraining, paths, monkeypatch):
    """Changed at equal size: sizes alone would not show it."""
    pretraining().run()
    before = paths[1].read_text()

    def refusal():
        with pytest.raises(ValueError, match="inputs have changed since the run began") as error:
            pretraining(settings={"num_epochs": 3}).run()
        return str(error.value)

    paths[1].write_text(before.replace("b b", "b a", 1))
    assert ": b.txt (training text), b.txt (held-out text). A run" in refusal()
    paths[1].write_text(before)
    monkeypatch.setitem(globals(), "WORDS", WordVocabulary([*SPECIAL_WORDS, *"bacd"]))
    assert ": the vocabulary. A run" in refusal()
    monkeypatch.undo()
    pretraining(settings={"num_epochs": 3}).run()


def test_the_log_says_how_large_a_run_is_and_what_an_epoch_has_brought(pretraining, caplog):
    caplog.set_level("INFO")
    pretraining().run()
    begun, *epochs, ended = (record.getMessage() for record in caplog.records)
    assert begun.startswith("Pretraining begins: 0.0M parameters of the biLM")
    assert "softmax over 7 words; 2 epochs of 96 tokens, 4 steps each, 8 steps in all" in begun
    assert [one[:21] for one in epochs] == ["epoch 0 done (1 of 2)", "epoch 1 done (2 of 2)"]
    assert "held-out perplexity" in epochs[0]
    assert "the best so far" in epochs[0]
    assert "exported the weights of epoch" in ended


def test_what_is_exported_is_said_with_its_step_and_the_curve(pretraining, caplog):
    """A run whose second epoch is worse: epoch 0 is exported."""
    caplog.set_level("INFO")
    run = at_rates(pretraining(), lambda number: 0.5 if number <= 4 else 50.0)
    metrics = run.run()
    said = caplog.records[-1].getMessage()
    best, last = metrics["best_validation_perplexity"], metrics["validation_perplexity"]
    assert f"weights of epoch 0, step 4 of 8, the best one: held-out perplexity {best:.2f}" in said
    assert f"it rose to {last:.2f} by the last epoch, 1" in said
    card = json.loads((run.files.directory / "card.json").read_text())
    assert (card["epoch"], card["steps"], card["steps_of_the_run"]) == (0, 4, 8)
    assert card["heldout_perplexity_by_epoch"] == [best, last]


def test_accumulated_batches_are_one_step_and_the_loss_is_the_mean_over_batches(pretraining):
    """By hand: of steps of 2, 2 and 1 batches."""
    run = pretraining(settings={"num_gradient_accumulation_steps": 2}, batches_per_epoch=5)
    steps = []
    run.on_step = steps.append
    metrics = run.run()
    mean = sum(step.loss * size for step, size in zip(steps[3:], (2, 2, 1), strict=True)) / 5
    assert metrics["training_loss"] == pytest.approx(mean, rel=1e-12)
    places = [(step.steps, step.num_batches) for step in steps]
    assert places == [(1, 2), (2, 2), (3, 1), (4, 2), (5, 2), (6, 1)]


def test_gradients_of_accumulated_batches_are_their_mean(pretraining):
    run = pretraining(settings={"num_gradient_accumulation_steps": 2})
    run._begin()
    pairs = [next(run.pairs), next(run.pairs)]
    model = run.model
    states, gradients = None, []
    for pair in pairs:
        model.zero_grad()
        model.dropout = 0.0
        output = model(pair, states)
        output.loss.backward()
        states = output.states
        gradients.append({name: one.grad for name, one in model.named_parameters()})
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    run.stepper.step(pairs, 1, 8, [])
    for name, parameter in model.named_parameters():
        mean = (gradients[0][name] + gradients[1][name]) / 2
        torch.testing.assert_close(parameter.detach(), before[name] - 0.1 * mean)


def test_a_run_ends_when_epochs_no_longer_help(pretraining):
    settings = {"optimizer": {"type": "sgd", "lr": 0.0}, "num_epochs": 9, "patience": 2}
    metrics = pretraining(settings=settings).run()
    assert (metrics["epoch"], metrics["best_epoch"]) == (2, 0)
    with pytest.raises(ValueError, match="patience is 2 without held-out text"):
        pretraining(settings=settings, heldout=None)


@pytest.mark.parametrize(("metric", "best"), [("-loss", 1), ("+loss", 0)])
def test_the_best_epoch_is_the_metrics_and_its_weights_are_left(pretraining, metric, best):
    """Rates that learn in the second epoch and spoil it in the third."""
    run = pretraining(settings={"num_epochs": 3, "validation_metric": metric})
    rates = [0.0, 0.5, 50.0 if best else 0.5]
    at_rates(run, lambda number: rates[(number - 1) // 4])
    end_epoch, weights = run._end_epoch, []

    def noted():
        weights.append({name: one.clone() for name, one in run.model.state_dict().items()})
        end_epoch()

    run._end_epoch = noted
    assert run.run()["best_epoch"] == best
    for name, one in run.model.state_dict().items():
        assert torch.equal(one, weights[best][name]), name


def test_without_heldout_text_the_last_epoch_counts(pretraining):
    metrics = pretraining(heldout=None).run()
    assert metrics["best_epoch"] == 1
    assert not any(name.startswith("validation") for name in metrics)


def test_a_run_resumed_after_an_epochs_last_step_counts_its_time_but_no_speed(
    pretraining, monkeypatch
):
    settings = {"num_epochs": 1, "checkpointer": CheckpointSettings(save_every_num_batches=4)}
    run = pretraining(settings=settings)
    run.on_step = lambda step: monkeypatch.setattr(run, "_begun", run._begun - 1000)
    monkeypatch.setattr(run, "_end_epoch", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.run()
    metrics = pretraining(settings=settings).run()
    assert metrics["training_duration"].startswith("1:06:4")
    assert "training_perplexity" in metrics
    assert "training_tokens_per_second" not in metrics


@pytest.mark.parametrize(
    ("checkpointer", "points"),
    [
        # By steps, whatever an epoch of 4 has.
        ({"save_every_num_batches": 5}, [(1, 1)]),
        # After 30 and 60 of 80 seconds, seen one step later.
        ({"save_every_num_seconds": 25}, [(0, 4), (1, 4)]),
        ({"save_every_num_seconds": 0}, [(e, b) for e in (0, 1) for b in (1, 2, 3, 4)]),
        ({"save_completed_epochs": True}, [(1, 0), (2, 0)]),
    ],
)
def test_it_saves_by_steps_by_the_clock_and_by_epochs(
    pretraining, monkeypatch, checkpointer, points
):
    """Of a clock that a step puts on by ten seconds."""
    now = 1000.0
    monkeypatch.setattr("elmo_plugin.bilm.pretraining.loop.time.monotonic", lambda: now)
    kept = {"save_completed_epochs": False, "keep_most_recent_by_count": None, **checkpointer}
    run = pretraining(settings={"checkpointer": CheckpointSettings(**kept)})

    def take_ten_seconds(step):
        nonlocal now
        now += 10

    run.on_step = take_ten_seconds
    run.run()
    assert saved(run) == [f"checkpoint_e{epoch}_b{batch}.th" for epoch, batch in points]


def test_figures_go_to_tensorboard_where_it_is_installed(pretraining, monkeypatch):
    run = pretraining(settings={"tensorboard": True})
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module := Mock())
    run.run()
    module.SummaryWriter.assert_called_once_with(str(run.files.directory / "log"))
    calls = module.SummaryWriter.return_value.add_scalar.call_args_list
    found = {(name, step) for (name, _, step), _ in calls}
    assert {("training/loss", 1), ("training/learning_rate", 8), ("epoch_validation/loss", 8)} <= (
        found
    )


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({}, "trainer: the key 'optimizer' is missing$"),
        ({"optimizer": "sgd"}, "trainer: optimizer is 'sgd', expected dict"),
        ({"type": "gradient_descent"}, "trainer.type is 'gradient_descent', expected 'bilm_pretr"),
        ({"num_epoch": 3}, "trainer: the key 'num_epoch' is unknown, expected one of .*num_epochs"),
        ({"checkpointer": {"keep": 1}}, "trainer.checkpointer: the key 'keep' is unknown"),
        (
            {"checkpointer": "often"},
            "trainer: checkpointer is 'often', expected CheckpointSettings",
        ),
        ({"checkpointer": {"type": "mine"}}, "checkpointer.type is 'mine', expected 'default'"),
        ({"learning_rate_scheduler": {"type": "noam"}}, "scheduler.type is 'noam', expected 'warm"),
        ({"learning_rate_scheduler": {}}, "scheduler: the key 'warmup_steps' is missing"),
        ({"learning_rate_scheduler": {"warmup_steps": "1"}}, "warmup_steps is '1', expected int"),
        ({"learning_rate_scheduler": {"warmup_steps": -3}}, "warmup_steps is -3, expected at leas"),
        (
            {"learning_rate_scheduler": {"warmup_steps": 1, "final_fraction": -5}},
            "final_fraction is -5, expected a number from 0 to 1",
        ),
        ({"num_epochs": 0}, "num_epochs is 0, expected at least 1"),
        ({"tensorboard": "false"}, "trainer: tensorboard is 'false', expected bool"),
        ({"patience": 2.5}, r"trainer: patience is 2.5, expected int \| None"),
        ({"grad_norm": True}, r"trainer: grad_norm is True, expected float \| None"),
        ({"grad_norm": -1}, "grad_norm is -1, expected a number above 0"),
        ({"checkpointer": {"keep_most_recent_by_count": -1}}, "_by_count is -1, expected at lea"),
        ({"checkpointer": {"save_every_num_batches": 0}}, "num_batches is 0, expected at least 1"),
        ({"checkpointer": {"save_every_num_seconds": -1}}, "seconds is -1, expected at least 0"),
        ({"gradient_scale": 0}, "gradient_scale is 0, expected a number above 0"),
        ({"frozen_steps": -1}, "frozen_steps is -1, expected at least 0"),
        ({"reset_probability": 1.5}, "reset_probability is 1.5, expected a number from 0 to 1"),
        ({"cuda_device": "x"}, "trainer: cuda_device is 'x', expected int"),
        ({"patience": 0}, "patience is 0, expected at least 1"),
        ({"num_gradient_accumulation_steps": 0}, "accumulation_steps is 0, expected at least 1"),
        ({"validation_metric": "-perplexty"}, "'-perplexty', expected .*'perplexity'"),
        ({"validation_metric": "perplexity"}, "is 'perplexity', expected [+] or - and one of"),
    ],
)
def test_what_a_config_says_wrong_is_named(trainer, message):
    given = {"optimizer": {"type": "sgd"}, **trainer} if trainer else {}
    model = {name: given.pop(name) for name in LOOP_KEYS if name in given}
    with pytest.raises(ValueError, match=message):
        make_settings({"trainer": given, "model": model})


def test_the_card_says_what_the_config_has_it_say():
    trainer = {"optimizer": {"type": "sgd"}, "card": {"data": "novels"}}
    assert make_settings({"trainer": trainer}, command=["pretrain"]).card == {
        "command": "pretrain",
        "data": "novels",
    }


@pytest.mark.parametrize(("fast_at_first", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_the_faster_type_where_the_run_begins_and_stays_it(
    pretraining, fast_at_first, expected, monkeypatch
):
    def run(num_epochs, fast):
        run = pretraining(settings={"num_epochs": num_epochs})
        run.model.dtype = "auto"
        monkeypatch.setattr(machine, "is_fast_in_bfloat16", lambda: fast)
        metrics = run.run()
        assert run.model.softmax.training_dtype == (None if expected == "float32" else expected)
        return metrics["training_dtype"]

    assert run(1, fast_at_first) == expected
    assert run(2, not fast_at_first) == expected


def test_a_type_that_was_asked_for_is_not_chosen(pretraining):
    run = pretraining(settings={"num_epochs": 1})
    assert "training_dtype" not in run.run()
    assert run.model.softmax.training_dtype is None
