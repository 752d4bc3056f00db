"""Several processes (gloo) take the steps of one with all their streams."""

import os
import random
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.checkpoints import CheckpointSettings
from elmo_plugin.bilm.pretraining.config import LoopSettings
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.loop import Pretraining
from elmo_plugin.bilm.pretraining.processes import Processes, all_reduce_rows
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary, word_counts
from tests.cases import first_quick
from tests.process_group import in_processes

OPTIONS = ElmoOptions(6, 10, 2, 4, ((1, 4), (2, 4)), 1, num_characters=12)
WORDS = WordVocabulary([*SPECIAL_WORDS, *(f"w{number}" for number in range(60))])
ROWS = 8
ADAGRAD = {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0}


@pytest.fixture
def text(tmp_path):
    rng = random.Random(0)
    for name in ("train", "heldout"):
        lines = (" ".join(rng.choices(WORDS.words[3:], k=rng.randint(2, 9))) for _ in range(120))
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def pretraining(
    folder, out, size, settings=None, num_samples=20, sparse=True, dropout=0.0, softmax=None
):
    torch.manual_seed(0)
    counts = torch.tensor(word_counts([folder / "train.txt"], WORDS)) if softmax else None
    softmax = WordSoftmax(len(WORDS), 6, num_samples, sparse, counts=counts, **(softmax or {}))
    model = LanguageModel(BiLm(OPTIONS), softmax, dropout)
    (folder / out).mkdir(exist_ok=True)
    settings = {"optimizer": ADAGRAD, "num_epochs": 2, "grad_norm": 0.5, **(settings or {})}
    shape = {"num_steps": 5, "num_characters": 12}
    texts = (
        StreamLoader([folder / "train.txt"], ROWS // size, batches_per_epoch=3, **shape),
        StreamLoader([folder / "heldout.txt"], 4 // size, shuffle=False, **shape),
    )
    return Pretraining(model, WORDS, *texts, folder / out, LoopSettings(**settings))


def train(rank, size, folder, out, dtype, kwargs, begun_with=None):
    """Train, or go on, in a run that `begun_with` processes have begun."""
    torch.set_default_dtype(dtype)
    run = pretraining(folder, out, begun_with or size, **kwargs)
    sources, losses = [], []
    step = run.stepper.step

    def watch(pairs, *arguments, **more):
        sources.extend(set(map(tuple, one.tolist())) for pair in pairs for one in pair.sources)
        return step(pairs, *arguments, **more)

    run.stepper.step = watch
    run.on_step = lambda step: losses.append(step.loss)
    metrics = run.run()
    torch.save((run.model.weights(), losses, metrics), folder / out / f"end_{rank}.pt")
    torch.save(sources, folder / out / f"sources_{rank}.pt")


def epochs(number):
    return {"settings": {"num_epochs": number}}


def ends(folder, out, size):
    return [torch.load(folder / out / f"end_{rank}.pt") for rank in range(size)]


ACCUMULATED = {"settings": {"num_gradient_accumulation_steps": 2, "frozen_steps": 2}}
ADAMW = {"sparse": False, "settings": {"optimizer": {"type": "adamw", "lr": 0.01}}}
RECIPE = {
    "sparse": False,
    "softmax": {"count_exponent": 0.8, "num_frequent": 5, "bias_from_counts": True},
    "settings": {**ADAMW["settings"], "reset_probability": 0.3, "dropout_free_steps": 2},
}


@first_quick(
    ("kwargs", "dtype", "size"),
    [
        ({"sparse": True}, torch.float64, 4),
        (RECIPE, torch.float64, 4),
        (ACCUMULATED, torch.float64, 2),
        ({"num_samples": None}, torch.float64, 2),
        ({"sparse": True}, torch.float32, 4),
        ({"sparse": False}, torch.float64, 2),
        (ADAMW, torch.float64, 2),
    ],
    ids=["sparse", "recipe", "accumulated", "full", "sparse32", "dense", "adamw"],
)
def test_several_processes_equal_one(text, kwargs, dtype, size):
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    try:
        train(0, 1, text, "one", dtype, kwargs)
    finally:
        torch.set_default_dtype(torch.float32)
    in_processes(size, train, text, "several", dtype, kwargs)
    ((weights, losses, metrics),) = ends(text, "one", 1)
    several = ends(text, "several", size)
    for found, found_losses, found_metrics in several:
        assert found_losses == pytest.approx(losses, rel=tolerance)
        perplexity = found_metrics["validation_perplexity"]
        assert perplexity == pytest.approx(metrics["validation_perplexity"], rel=tolerance)
        for name, tensor in weights.items():
            torch.testing.assert_close(found[name], tensor, atol=tolerance, rtol=tolerance)
            assert torch.equal(found[name], several[0][0][name]), name


def test_the_weights_are_no_longer_those_of_the_start(text):
    train(0, 1, text, "one", torch.float32, {})
    start = pretraining(text, "start", 1).model.weights()
    ((weights, _, _),) = ends(text, "one", 1)
    assert all(not torch.equal(weights[name], tensor) for name, tensor in start.items())


def test_uneven_shares_are_the_same_batch(text):
    """Eight rows in three processes; the held-out text has fewer rows than there are processes."""
    train(0, 1, text, "one", torch.float32, epochs(1))
    in_processes(3, train, text, "one", torch.float32, epochs(2), 1)
    train(0, 1, text, "whole", torch.float32, {})
    ((weights, losses, _),) = ends(text, "whole", 1)
    found, found_losses, _ = ends(text, "one", 3)[2]
    assert found_losses == pytest.approx(losses[3:], rel=1e-5)
    for name, tensor in weights.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=1e-5)


def sources_of(folder, out, size):
    """Files and lines of each batch, over all processes."""
    parts = [torch.load(folder / out / f"sources_{rank}.pt") for rank in range(size)]
    return [set.union(*one) for one in zip(*parts)]


@pytest.mark.slow
def test_four_then_two_then_four_go_on_as_one_run(text):
    """The loss of an undisturbed run; and every batch is read from the same lines."""
    losses, sources = [], []
    for number, size in enumerate((4, 2, 4), start=1):
        in_processes(size, train, text, "changing", torch.float32, epochs(number), 4)
        losses += ends(text, "changing", size)[0][1]
        sources += sources_of(text, "changing", size)
    in_processes(4, train, text, "whole", torch.float32, epochs(3))
    assert losses == pytest.approx(ends(text, "whole", 4)[0][1], rel=1e-6)
    assert sources == sources_of(text, "whole", 4)
    assert len(losses) == 9


NUM_WORDS, DIM, NUM_SAMPLES, BATCH, UNROLL = 800_000, 8, 8192, 128, 20


def count_bytes(rank, size, folder):
    """What this process's calls send: a ring's share of each."""
    sent = []
    all_reduce, all_gather = dist.all_reduce, dist.all_gather

    def counted_reduce(tensor, *args, **kwargs):
        sent.append(2 * (size - 1) / size * tensor.nbytes)
        return all_reduce(tensor, *args, **kwargs)

    def counted_gather(tensors, tensor, *args, **kwargs):
        sent.append((size - 1) * tensor.nbytes)
        return all_gather(tensors, tensor, *args, **kwargs)

    dist.all_reduce, dist.all_gather = counted_reduce, counted_gather
    softmax = WordSoftmax(NUM_WORDS, DIM, NUM_SAMPLES, sparse=True)
    softmax.sums_rows = True
    generator = torch.Generator().manual_seed(rank)
    drawn = softmax.draw(7)
    for negatives in drawn:
        outputs = torch.randn(BATCH * UNROLL, DIM, generator=generator)
        targets = torch.randint(NUM_WORDS, (BATCH * UNROLL,), generator=generator)
        softmax([outputs], [targets], [negatives])[0].backward()
    ids = torch.cat([softmax.word_ids(one) for one in drawn])
    all_reduce_rows(softmax, ids, Processes(torch.device("cpu")), 1 / size)
    dense = 2 * (size - 1) / size * (softmax.weight.nbytes + softmax.bias.nbytes)
    torch.save((sum(sent), dense), folder / f"bytes_{rank}.pt")


def test_a_step_sends_little_of_a_large_vocabulary(tmp_path):
    """The paper's batch, unroll and negatives; targets as unlike each other as can be."""
    in_processes(2, count_bytes, tmp_path)
    for rank in range(2):
        sent, dense = torch.load(tmp_path / f"bytes_{rank}.pt")
        assert 0.01 * dense < sent < 0.05 * dense


def is_killed(rank, size, folder, out, victim, at):
    """As an out-of-memory killer does it."""
    # The parent ends the others as soon as one is dead; what they say is looked at.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    run = pretraining(folder, out, size, KEPT, dropout=0.1)

    def die(step):
        if (rank, step.steps) == (victim, at):
            os.kill(os.getpid(), signal.SIGKILL)

    run.on_step = die
    with pytest.raises(RuntimeError, match=r"another process of the run is gone .*--recover"):
        run.run()
    (folder / out / f"named_by_{rank}").touch()


KEPT = {"checkpointer": CheckpointSettings(save_every_num_batches=2), "num_epochs": 2}
RANDOM = random.Random(15)
KILLS = [(RANDOM.randrange(4), RANDOM.randrange(2, 7)) for _ in range(3)]


@pytest.mark.slow
def test_one_of_four_is_killed_and_no_bit_differs(text):
    """The others end with its name; started again, the run ends as one that was left alone."""
    settings = {"settings": KEPT, "dropout": 0.1}
    in_processes(4, train, text, "whole", torch.float32, settings)
    expected = ends(text, "whole", 4)[0]
    for number, (victim, at) in enumerate(KILLS):
        out = f"killed_{number}"
        with pytest.raises(ProcessExitedException, match=f"process {victim} terminated"):
            in_processes(4, is_killed, text, out, victim, at)
        named = {path.name for path in (text / out).glob("named_by_*")}
        assert named == {f"named_by_{rank}" for rank in range(4) if rank != victim}
        in_processes(4, train, text, out, torch.float32, settings)
        for weights, losses, _ in ends(text, out, 4):
            assert losses == expected[1][-len(losses) :]
            assert len(losses) >= 6 - at
            for name, tensor in expected[0].items():
                assert torch.equal(weights[name], tensor), (victim, at, name)


def test_more_processes_than_streams_is_an_error(text, monkeypatch):
    run = pretraining(text, "out", 1)
    run.processes.size = 9
    monkeypatch.setattr(run.processes, "check_same", lambda **values: None)
    monkeypatch.setattr(run.processes, "run_on_first", lambda function: function())
    monkeypatch.setattr(run.processes, "broadcast", lambda tensors: None)
    with pytest.raises(ValueError, match="9 processes for 8 streams"):
        run.run()


def fails_alone(rank, size, folder):
    processes = Processes(torch.device("cpu"))

    def fail():
        raise ValueError("no text")

    with pytest.raises(ValueError, match="no text" if rank == 0 else "process 0 failed: no text"):
        processes.run_on_first(fail)


def reads_for_long(rank, size):
    processes = Processes(torch.device("cpu"))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1))
    time.sleep(2 * rank)
    processes.check_same(start=0)


def test_the_others_wait_for_one_that_reads_for_long():
    """For instance the text, from a slow disk."""
    in_processes(2, reads_for_long)


def test_what_the_first_process_fails_at_is_said_in_all(tmp_path):
    in_processes(2, fails_alone, tmp_path)


def adds_rows(rank, size, seen):
    """Of each process so many rows that are no negatives: the sums by hand."""
    processes, targets = Processes(torch.device("cpu")), [list(range(3, 3 + n)) for n in seen]
    softmax = WordSoftmax(len(WORDS), 6, 20, sparse=True)
    negatives = torch.arange(30, 50)
    ids = torch.tensor([31, *targets[rank]])
    for parameter, width in ((softmax.weight, 6), (softmax.bias, 1)):
        values = torch.full((len(ids), width), rank + 1.0)
        parameter.grad = torch.sparse_coo_tensor(ids[None], values, parameter.shape)
    all_reduce_rows(softmax, negatives, processes, 0.5)
    for parameter in (softmax.weight, softmax.bias):
        expected = torch.zeros_like(parameter)
        for other, own in enumerate(targets):
            expected[[31, *own]] += 0.5 * (other + 1)
        assert torch.equal(parameter.grad.to_dense(), expected)


@pytest.mark.parametrize("seen", [(0, 0), (1, 0), (1, 1), (1, 4), (3, 2)])
def test_few_rows_beside_the_negatives(seen):
    in_processes(2, adds_rows, seen)


def ends_before_the_best_is_written(rank, size, folder):
    checkpointer = CheckpointSettings(save_completed_epochs=False)
    run = pretraining(folder, "slow", size, {"checkpointer": checkpointer, "num_epochs": 1})
    save_best = run.files.save_best

    def save_late(weights):
        time.sleep(1)
        save_best(weights)

    run.files.save_best = save_late
    run.run()


def test_none_takes_the_best_weights_before_they_are_written(text):
    in_processes(2, ends_before_the_best_is_written, text)


def runs_differ(rank, size, folder):
    run = pretraining(folder, "out", size, {"seed": rank})
    with pytest.raises(ValueError, match=r"settings is LoopSettings.*in process 0.*in process 1"):
        run.run()
    run = pretraining(folder, "out", size, dropout=0.1 * rank)
    with pytest.raises(ValueError, match=r"model is ElmoOptions.* dropout 0.0.* dropout 0.1"):
        run.run()
    run = pretraining(folder, "out", size)
    if rank == 1:
        run.heldout = None
    with pytest.raises(ValueError, match=r"texts is .*heldout.txt.*None"):
        run.run()


def test_processes_with_other_settings_model_or_heldout_text_are_told_apart(text):
    in_processes(2, runs_differ, text)


def saves_by_the_clock(rank, size, folder):
    checkpointer = CheckpointSettings(save_every_num_seconds=0, keep_most_recent_by_count=None)
    settings = {"checkpointer": checkpointer, "num_epochs": 1}
    pretraining(folder, "clock", size, settings).run()


def test_the_first_process_says_when_to_save(text):
    in_processes(2, saves_by_the_clock, text)
    assert len(list((text / "clock").glob("checkpoint_*"))) == 4
