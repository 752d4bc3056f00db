"""What stands in a run's folder: checkpoints, whole or passed over, and those that go."""

import os
import random
import time

import pytest
import torch

from elmo_plugin.bilm.pretraining.checkpoints import CheckpointSettings, RunFiles


def names(folder):
    return sorted(path.name for path in folder.glob("checkpoint_*"))


def files(folder, **settings):
    return RunFiles(folder, CheckpointSettings(**settings))


def test_the_newest_whole_one_is_read(tmp_path):
    run = files(tmp_path)
    assert run.newest(clean=True) is None
    run.save(0, 9, {"step": 9})
    run.save(0, 10, {"step": 10})
    assert run.newest(clean=True) == {"format": 2, "step": 10}
    path = tmp_path / "checkpoint_e0_b10.th"
    path.write_bytes(path.read_bytes()[:-50])
    assert run.newest(clean=True)["step"] == 9


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harm",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no checkpoint can be read.*checkpoint_e1_b5\.th: "),
        ({"format": 3}, r"its format is 3, expected \(1, 2\)"),
        ({"format": 2, "model": Harm()}, "no checkpoint can be read"),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_executed(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint_e1_b5.th"
    if content is None:
        path.write_bytes(b"torn")
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=message):
        files(tmp_path).newest(clean=True)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [(0, 9), (0, 10)]),
        ({"keep_most_recent_by_count": 1}, [(0, 10)]),
        ({"keep_most_recent_by_count": None}, [(0, 1), (0, 9), (0, 10)]),
        ({"keep_most_recent_by_count": None, "keep_most_recent_by_age": 5000}, [(0, 9), (0, 10)]),
    ],
)
def test_older_ones_go(tmp_path, settings, kept):
    for batches, age in ((1, 10_000), (9, 10)):
        torch.save({"format": 2}, path := tmp_path / f"checkpoint_e0_b{batches}.th")
        os.utime(path, times=(time.time() - age,) * 2)
    files(tmp_path, **settings).save(0, 10, {})
    assert names(tmp_path) == sorted(f"checkpoint_e{e}_b{b}.th" for e, b in kept)


def test_those_that_were_passed_over_go(tmp_path):
    (tmp_path / "checkpoint_e1_b5.th").write_bytes(b"torn")
    files(tmp_path).save(1, 4, {})
    assert names(tmp_path) == ["checkpoint_e1_b4.th"]


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """Anywhere in the file: the checkpoint is skipped, or loads with the same values."""
    run = files(tmp_path)
    state = {"model": {"weight": torch.arange(300.0)}, "steps": 7}
    run.save(0, 1, state)
    path = tmp_path / "checkpoint_e0_b1.th"
    content = path.read_bytes()
    rng, refused = random.Random(3), 0
    for _ in range(150):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            found = run.newest(clean=False)
        except ValueError:
            refused += 1
            continue
        assert torch.equal(found["model"]["weight"], state["model"]["weight"])
        assert found["steps"] == 7
    assert refused > 50


def test_damaged_best_weights_are_refused(tmp_path):
    run = files(tmp_path)
    run.save_best({"weight": torch.arange(300.0)})
    content = bytearray(run.best.read_bytes())
    place = content.index(torch.arange(300.0).numpy().tobytes()[:400])
    content[place + 100] ^= 4
    run.best.write_bytes(content)
    with pytest.raises(ValueError, match=r"best\.th cannot be read: .*the checksum of"):
        run.load_best()
