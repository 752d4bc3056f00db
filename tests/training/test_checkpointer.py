"""
Runs that are interrupted, killed and damaged must end as the run that was left alone.

The runs are AllenNLP's own tagger on data written here, shuffled, with dropout.
"""

import errno
import inspect
import logging
import os
import signal
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import SigTermReceived
from allennlp.training import gradient_descent_trainer
from allennlp.training.checkpointer import Checkpointer
from interrupted_run import assert_same_end, names, send, validation

from elmo_plugin.training.checkpointer import AtomicCheckpointer
from tests.cases import first_quick
from tests.fresh_process import allennlp


def test_it_is_the_default_without_a_key_in_the_config(tmp_path):
    assert type(Checkpointer.from_params(Params({}), serialization_dir=tmp_path)) is (
        AtomicCheckpointer
    )


def test_arguments_are_those_of_allennlp():
    stock, ours = (
        inspect.signature(c.__init__).parameters for c in (Checkpointer, AtomicCheckpointer)
    )
    assert {n: p.default for n, p in stock.items()} == {n: p.default for n, p in ours.items()}


@first_quick(
    ("at", "saved", "number", "raised"),
    [
        ((1, 3), "e1_b3", signal.SIGXCPU, SigTermReceived),
        ((0, "validation"), "e1_b0", signal.SIGINT, KeyboardInterrupt),
        ((0, 1), "e0_b1", signal.SIGINT, KeyboardInterrupt),
        ((2, 4), "e2_b4", signal.SIGTERM, SigTermReceived),
    ],
    count=2,
)
def test_a_signal_saves_and_the_run_goes_on_as_if_never_stopped(
    train, tmp_path, undisturbed, at, saved, number, raised
):
    before = signal.getsignal(number)
    with pytest.raises(raised):
        train(tmp_path / "run", at, send(number))
    assert signal.getsignal(number) is before
    assert f"model_state_{saved}.th" in names(tmp_path / "run")
    metrics = train(tmp_path / "run")
    assert validation(metrics) == validation(undisturbed[1])
    assert_same_end(tmp_path / "run", undisturbed[0])


def test_a_second_signal_stops_at_once(train, tmp_path):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("still running")

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", (0, 2), twice)
    assert names(tmp_path / "run") == []


def test_a_signal_while_skipping_stops_at_once(train, tmp_path, monkeypatch):
    run = tmp_path / "run"
    train(run, num_epochs=1)
    state = names(run)
    from elmo_plugin.training.trainer import ResumableTrainer

    handle_signals = ResumableTrainer._handle_signals

    def handle_and_signal(self):
        handle_signals(self)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ResumableTrainer, "_handle_signals", handle_and_signal)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(run)
    assert names(run) == state
    assert signal.getsignal(signal.SIGINT) is before


@first_quick(
    ("kind", "kept"),
    [
        ("model_state", 0.99),
        ("training_state", 0.0),
        ("training_state", None),
        ("model_state", 0.0),
        ("training_state", 0.5),
    ],
    count=3,
)
def test_a_torn_newest_pair_is_passed_over(train, tmp_path, undisturbed, caplog, kind, kept):
    run = tmp_path / "run"
    train(run, num_epochs=2)
    torn = run / f"{kind}_e2_b0.th"
    content = torn.read_bytes()
    torn.unlink()  # best.th is another name of the same file
    if kept is not None:
        torn.write_bytes(content[: int(kept * len(content))])
        # AllenNLP's own checkpointer gives up here.
        with pytest.raises((RuntimeError, EOFError, OSError)):
            Checkpointer(run).load_checkpoint()
    with caplog.at_level(logging.WARNING):
        train(run)
    said = "incomplete checkpoint: there is no" if kept is None else "cannot be read:"
    assert f"{said} {torn}" in caplog.text
    assert_same_end(run, undisturbed[0])


def test_a_kill_in_the_first_save_starts_from_the_beginning(train, tmp_path, undisturbed):
    run = tmp_path / "run"
    run.mkdir()
    (run / "model_state_e1_b0.th").write_bytes(b"")
    train(run)
    assert_same_end(run, undisturbed[0])


def test_nothing_readable_is_an_error_that_names_the_files(train, tmp_path):
    run = tmp_path / "run"
    train(run, num_epochs=2)
    for path in run.glob("training_state_*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ConfigurationError, match=r"training_state_e2_b0\.th.*e1_b0\.th"):
        train(run)
    assert len(list(run.glob("training_state_*"))) == 2


@pytest.mark.parametrize("point", ["e1_b0", "e2_b0"])
def test_a_full_disk_leaves_the_checkpoint_before(train, tmp_path, undisturbed, monkeypatch, point):
    run = tmp_path / "run"
    run.mkdir()
    (run / f"training_state_{point}.th").write_bytes(b"of a run that lost its model")
    save = torch.save

    def full(state, file):
        if point in file.name and "epochs_completed" in state:
            file.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(state, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=rf"training_state_{point}\.th \(No space left on device\)"):
        train(run)
    whole = {"model_state_e1_b0.th", "training_state_e1_b0.th"} if point == "e2_b0" else set()
    assert {n for n in names(run) if "_state_" in n} == {*whole, f"model_state_{point}.th"}
    assert not [name for name in names(run) if name.endswith(".tmp")]
    monkeypatch.undo()
    train(run)
    assert_same_end(run, undisturbed[0])


@pytest.mark.parametrize("moving_average", [None, {"type": "exponential", "decay": 0.5}])
def test_a_kill_before_the_best_weights_are_copied(train, tmp_path, monkeypatch, moving_average):
    settings = {} if moving_average is None else {"moving_average": moving_average}
    train(tmp_path / "undisturbed", **settings)
    run = tmp_path / "run"

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    monkeypatch.setattr(gradient_descent_trainer, "hardlink_or_copy", kill)
    monkeypatch.setattr(gradient_descent_trainer.GradientDescentTrainer, "_save_model_state", kill)
    with pytest.raises(Killed):
        train(run, **settings)
    monkeypatch.undo()
    assert "best.th" not in names(run)
    AtomicCheckpointer(run).load_checkpoint()
    assert "best.th" in names(run)
    train(run, **settings)
    assert_same_end(run, tmp_path / "undisturbed")


def test_best_weights_that_were_removed(train, tmp_path):
    """They are those of the best epoch's checkpoint; without it, the run ends before it trains."""
    run = tmp_path / "run"
    train(run, num_epochs=2)
    state = torch.load(run / "training_state_e2_b0.th")
    state["metric_tracker"]["best_epoch"], state["elmo_plugin_is_best"] = 0, False
    torch.save(state, run / "training_state_e2_b0.th")
    (run / "best.th").unlink()
    AtomicCheckpointer(run).load_checkpoint()
    found, wanted = torch.load(run / "best.th"), torch.load(run / "model_state_e1_b0.th")
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)
    for name in ("best.th", "model_state_e1_b0.th"):
        (run / name).unlink()
    with pytest.raises(ConfigurationError, match=r"there is no .*best\.th.* epoch, number 0"):
        train(run)


def test_the_average_of_a_distributed_model_is_that_of_the_model(tmp_path):
    """Its names are those of the wrapped model."""
    averages = {"module.a": torch.ones(1), "b": torch.ones(1)}
    training = {"elmo_plugin_is_best": True, "moving_average": {"shadows": averages}}
    checkpoint = ({"a": torch.zeros(1), "b": torch.zeros(1)}, training)
    AtomicCheckpointer(tmp_path)._restore_best(checkpoint)
    assert torch.load(tmp_path / "best.th") == {"a": 1, "b": 1}


def test_only_whole_old_checkpoints_are_removed(train, tmp_path):
    run = tmp_path / "run"
    train(run, num_epochs=1, checkpointer={"save_every_num_batches": 1})
    assert [n for n in names(run) if n.startswith("model")] == [
        "model_state_e0_b4.th",
        "model_state_e1_b0.th",
    ]


def test_removing_batch_1_leaves_batch_10(tmp_path):
    for point in ("e0_b1", "e0_b10"):
        for kind in ("model", "training"):
            (tmp_path / f"{kind}_state_{point}.th").touch()
    AtomicCheckpointer(tmp_path)._remove_checkpoint(0, 1)
    assert names(tmp_path) == ["model_state_e0_b10.th", "training_state_e0_b10.th"]


def test_a_moved_directory_goes_on_with_its_own_best_weights(train, tmp_path, undisturbed):
    train(tmp_path / "run", num_epochs=2)
    (tmp_path / "run").rename(tmp_path / "moved")
    train(tmp_path / "moved")
    assert_same_end(tmp_path / "moved", undisturbed[0])
    assert not (tmp_path / "run").exists()


KILLER = """
import os, signal, torch
os.setpgrp()  # the signal to all is for this run alone
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
save = torch.save
def save_half_and_die(state, file):
    if "e2_b0" in file.name and "KILL" in os.environ and "epochs_completed" in state:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    save(state, file)
torch.save = save_half_and_die

from allennlp.training.callbacks import TrainerCallback
@TrainerCallback.register("at_batch")
class Signal(TrainerCallback):
    def on_batch(self, trainer, inputs, outputs, metrics, epoch, batch_number, **kwargs):
        if os.environ.get("CTRL_C") == f"{epoch} {batch_number}":
            os.killpg(0, signal.SIGINT)  # as a terminal does: data loader workers get it too
"""


@pytest.mark.slow
def test_allennlp_train_recovers(config, tmp_path):
    (tmp_path / "killer.py").write_text(KILLER)
    config["data_loader"]["num_workers"] = 1
    Params(config).to_file(str(tmp_path / "config.json"))

    def allennlp_train(directory, *arguments, **environment):
        packages = ["--include-package", "elmo_plugin.plugin", "--include-package", "killer"]
        return allennlp(
            *("train", "config.json", "-s", directory, *packages, *arguments),
            folder=tmp_path,
            **environment,
        )

    allennlp_train("undisturbed")
    for number, disturbance in enumerate([{"CTRL_C": "0 2"}, {"KILL": "yes"}]):
        stopped = allennlp_train("run", *["--recover"][:number], status=None, **disturbance)
        assert stopped.returncode != 0
        if "CTRL_C" in disturbance:
            assert "and saved; continue with --recover" in stopped.stderr.splitlines()[-1]
            assert "Traceback" not in stopped.stderr
        assert "has already been registered" not in stopped.stderr
        assert not (tmp_path / "run" / "metrics.json").exists()
    again = allennlp_train("run", "--recover")
    assert "Recovering from" in again.stderr
    assert_same_end(tmp_path / "run", tmp_path / "undisturbed")
    found, wanted = (
        Params.from_file(str(tmp_path / name / "metrics.json")).as_dict(quiet=True)
        for name in ("run", "undisturbed")
    )
    assert validation(found) == validation(wanted)
    assert Path(tmp_path / "run" / "model.tar.gz").exists()
