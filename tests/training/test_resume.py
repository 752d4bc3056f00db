"""
A pretraining run that is stopped, at any step, in any way, ends as one that was left alone: through
`allennlp train` and through `elmo-plugin pretrain`, with the same bits.
"""

import functools
import json
import random
import signal

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.util import SigTermReceived

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.__main__ import main
from elmo_plugin.bilm.pretraining import pretrain as pretrain_module
from elmo_plugin.bilm.pretraining.loop import Pretraining
from tests.cases import first_quick
from tests.sample_pretraining import SMALL, sample

NUM_EPOCHS, NUM_BATCHES = 3, 7
FILES = ["options.json", "weights.hdf5", "softmax.hdf5", "vocabulary.txt"]


class WatchLosses:
    """Notes every step's loss, and calls `action` once, at the step `point`."""

    losses, point, action = {}, None, None

    @staticmethod
    def on_step(step):
        epoch, batch = divmod(step.steps - 1, NUM_BATCHES)
        point = epoch, batch + 1
        WatchLosses.losses[point] = step.loss
        if WatchLosses.point == point:
            WatchLosses.point = None
            WatchLosses.action()


@pytest.fixture(autouse=True, scope="module")
def watched():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pretrain_module,
            "Pretraining",
            functools.partial(Pretraining, on_step=WatchLosses.on_step),
        )
        yield


def config(optimizer="adagrad", num_workers=0):
    name = {"adagrad": "bilm", "adamw": "bilm_small"}[optimizer]
    model = {"dropout": 0.1, "dropout_free_steps": 2, "reset_probability": 0.4}
    loader = {"batches_per_epoch": NUM_BATCHES, "num_steps": 5, "num_workers": num_workers}
    return sample(
        name,
        **SMALL,
        **{f"model.{key}": value for key, value in model.items()},
        **{f"data_loader.{key}": value for key, value in loader.items()},
        **{"validation_data_loader.batch_size": 16, "trainer.num_epochs": NUM_EPOCHS},
        **{"trainer.checkpointer": {"save_every_num_batches": 2}},
    )


def by_allennlp(config, directory, recover):
    train_model(Params(config), str(directory), recover=recover)


def by_ourselves(config, directory, recover):
    path = directory.with_suffix(".json")
    path.write_text(json.dumps(config))
    try:
        main(["pretrain", str(path), "-s", str(directory), *["--recover"] * recover])
    except SystemExit as end:
        kinds = {
            130: KeyboardInterrupt,
            143: SigTermReceived,
            128 + signal.SIGUSR1: SigTermReceived,
        }
        raise kinds[end.code] from end


@pytest.fixture(params=[pytest.param(by_allennlp, marks=pytest.mark.slow), by_ourselves])
def run(request):
    def run(config, directory, recover=False):
        WatchLosses.losses = {}
        request.param(config, directory, recover)
        return dict(WatchLosses.losses)

    return run


def results(directory):
    metrics = [
        json.loads((directory / f"metrics_epoch_{epoch}.json").read_text())
        for epoch in range(NUM_EPOCHS)
    ]
    kept = ("training_loss", "training_sampled_perplexity", "validation_loss", "best_epoch")
    return [{key: one[key] for key in kept} for one in metrics]


def weights(directory):
    state = torch.load(directory / "best.th", weights_only=True)
    return {name: tensor.clone() for name, tensor in state.items()}


@pytest.fixture(scope="module")
def undisturbed(watched, tmp_path_factory):
    kept = {}
    for optimizer in ("adagrad", "adamw"):
        directory = tmp_path_factory.mktemp("undisturbed") / "out"
        WatchLosses.losses = {}
        by_allennlp(config(optimizer), directory, recover=False)
        losses = dict(WatchLosses.losses)
        assert len(losses) == NUM_EPOCHS * NUM_BATCHES
        kept[optimizer] = losses, results(directory), weights(directory)
    return kept


def assert_same_end(undisturbed, losses, directory):
    expected_losses, expected_results, expected_weights = undisturbed
    assert losses
    assert losses == {point: expected_losses[point] for point in losses}
    assert max(losses) == (NUM_EPOCHS - 1, NUM_BATCHES)
    assert results(directory) == expected_results
    found = weights(directory)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected_weights.items())
    assert all((directory / name).exists() for name in FILES)


RANDOM = random.Random(7)
POINTS = [(e, b) for e in range(NUM_EPOCHS) for b in range(1, NUM_BATCHES + 1)]
AT_RANDOM, AT_THE_END = RANDOM.sample(POINTS, 3), [(1, NUM_BATCHES)]


@first_quick(
    ("run", "optimizer", "points"),
    [
        (by_ourselves, "adamw", AT_RANDOM),
        (by_allennlp, "adagrad", AT_RANDOM),
        (by_allennlp, "adamw", AT_THE_END),
        (by_ourselves, "adagrad", AT_THE_END),
    ],
    indirect=["run"],
)
def test_ctrl_c_at_any_steps_changes_no_bit(run, undisturbed, tmp_path, points, optimizer):
    WatchLosses.action = staticmethod(lambda: signal.raise_signal(signal.SIGINT))
    recover, steps_seen = False, {}
    for point in sorted(points):
        WatchLosses.point = point
        with pytest.raises(KeyboardInterrupt):
            run(config(optimizer), tmp_path / "out", recover)
        steps_seen |= WatchLosses.losses
        assert not any((tmp_path / "out" / name).exists() for name in FILES)
        recover = True
    last = run(config(optimizer), tmp_path / "out", recover=True)
    assert not set(last) & set(steps_seen), "a step was done twice"
    assert_same_end(undisturbed[optimizer], steps_seen | last, tmp_path / "out")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_sigterm_and_slurms_signal_are_as_good(run, undisturbed, tmp_path, number):
    WatchLosses.action = staticmethod(lambda: signal.raise_signal(number))
    WatchLosses.point = (1, 3)
    with pytest.raises(SigTermReceived):
        run(config(), tmp_path / "out", recover=True)  # without a run, it begins one
    losses = run(config(), tmp_path / "out", recover=True)
    assert_same_end(undisturbed["adagrad"], losses, tmp_path / "out")


@first_quick(("run", "point"), [(by_ourselves, (0, 4)), (by_allennlp, (2, 7))], indirect=["run"])
def test_a_crash_goes_on_from_the_last_checkpoint(run, undisturbed, tmp_path, point):
    def crash():
        raise RuntimeError("out of memory, say")

    WatchLosses.action, WatchLosses.point = staticmethod(crash), point
    with pytest.raises(RuntimeError, match="out of memory, say"):
        run(config(), tmp_path / "out")
    losses = run(config(), tmp_path / "out", recover=True)
    assert min(losses) <= point
    assert_same_end(undisturbed["adagrad"], losses, tmp_path / "out")


def test_workers_do_not_change_where_a_run_stands(run, undisturbed, tmp_path):
    """Stopped with workers that had read ahead, gone on without."""
    WatchLosses.action = staticmethod(lambda: signal.raise_signal(signal.SIGINT))
    WatchLosses.point = (1, 4)
    with pytest.raises(KeyboardInterrupt):
        run(config(num_workers=2), tmp_path / "out")
    # --recover asks for the config it was started with.
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["data_loader"]["num_workers"] == 2
    losses = run(config(num_workers=2), tmp_path / "out", recover=True)
    assert_same_end(undisturbed["adagrad"], losses, tmp_path / "out")


@pytest.fixture
def stopped(run, tmp_path):
    WatchLosses.action = staticmethod(lambda: signal.raise_signal(signal.SIGINT))
    WatchLosses.point = (1, 5)
    with pytest.raises(KeyboardInterrupt):
        run(config(), tmp_path / "out")
    return tmp_path / "out"


def test_a_torn_checkpoint_is_passed_over(run, undisturbed, stopped):
    newest = stopped / "checkpoint_e1_b5.th"
    newest.write_bytes(newest.read_bytes()[:1000])
    losses = run(config(), stopped, recover=True)
    assert min(losses) == (1, 5)  # the checkpoint before holds the first 4
    assert_same_end(undisturbed["adagrad"], losses, stopped)


def test_a_run_is_begun_through_one_door_and_ended_through_the_other(undisturbed, tmp_path):
    WatchLosses.action = staticmethod(lambda: signal.raise_signal(signal.SIGINT))
    for one, other in ((by_allennlp, by_ourselves), (by_ourselves, by_allennlp)):
        out = tmp_path / one.__name__ / "out"
        out.parent.mkdir()
        WatchLosses.point = (1, 5)
        with pytest.raises(KeyboardInterrupt):
            one(config(), out, recover=False)
        WatchLosses.losses = {}
        other(config(), out, recover=True)
        assert_same_end(undisturbed["adagrad"], WatchLosses.losses, out)
