"""Training of several runs in parallel. Unfinished runs are resumed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.files.atomic_write import atomic_write
from experiments.table1.one_run import CONFIG, FAILED, LOG, is_complete
from experiments.table1.plan import Run, to_text
from experiments.table1.results import duration

# Seconds between two checks for processes that have ended.
PAUSE = 0.5


def train(
    runs: list[Run],
    out: Path,
    make_config: Callable[[Run], dict[str, Any]],
    processes: int,
    say: Callable[[str], None] = print,
) -> None:
    """
    Train all runs that are not complete; resume those that have begun. A run that fails writes
    `failed.txt` and does not stop other runs; the next call tries it again. After Ctrl-C, each
    process saves a checkpoint before it ends.

    `out` is the table's folder, `processes` the number of runs at a time, one thread each. `say` is
    called with a line of text for each run that ends. Raise a `ValueError` if a run's folder
    already has a different config.
    """
    for run in runs:
        _write_config(run, out / run.folder, make_config(run))
    waiting = [run for run in runs if not is_complete(out / run.folder)]
    if len(waiting) < len(runs):
        say(f"{len(runs) - len(waiting)} of {len(runs)} runs are complete already")
    estimate = Estimate(runs, out)
    running: dict[Run, subprocess.Popen[bytes]] = {}
    began: dict[Run, float] = {}
    done = len(runs) - len(waiting)
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                run = waiting.pop(0)
                running[run], began[run] = _start(out / run.folder), time.time()
            time.sleep(PAUSE)
            for run, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[run]
                done += 1
                seconds = time.time() - began.pop(run)
                if is_complete(out / run.folder):
                    estimate.add(run, seconds)
                    text = _took(seconds)
                else:
                    text = _note_failure(out / run.folder, process.returncode)
                left = estimate.seconds([*waiting, *running]) / processes
                say(f"[{done}/{len(runs)}] {run}: {text}; {_took(left)} left at this pace")
    finally:
        for process in running.values():
            process.terminate()  # the process saves a checkpoint after its current batch
        for process in running.values():
            process.wait()


def _write_config(run: Run, folder: Path, values: Mapping[str, Any]) -> None:
    text = to_text(values)
    path = folder / CONFIG
    if path.exists():
        if path.read_bytes() != text.encode():
            raise ValueError(
                f"{path} is of other settings or data than this run's ({run}), expected the same; "
                "give another folder, or remove this one"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as aside:
        aside.write_text(text, "utf-8")


def _start(folder: Path) -> "subprocess.Popen[bytes]":
    (folder / FAILED).unlink(missing_ok=True)
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.table1.one_run", str(folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            # A terminal's Ctrl-C must not reach the run: `train` sends a signal too, and a second
            # one would end the run at once.
            start_new_session=True,
        )


def _note_failure(folder: Path, status: int) -> str:
    lines = (folder / LOG).read_text("utf-8", "replace").strip().splitlines()
    last = lines[-1][-500:] if lines else "no output"
    text = f"failed with status {status}: {last} (see {folder / LOG})"
    with atomic_write(folder / FAILED) as aside:
        aside.write_text(text + "\n", "utf-8")
    return text


class Estimate:
    """
    Estimate of the remaining time. It assumes that a run takes the mean time of the complete runs
    with the same task and arm. For a run on a fraction of the training data, the time is multiplied
    by the square root of that fraction. The first estimate is made from the complete ones of `runs`
    in the table's folder `out`.
    """

    def __init__(self, runs: list[Run], out: Path) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = {}
        for run in runs:
            if is_complete(out / run.folder):
                self.add(run, duration(run, out))

    def add(self, run: Run, seconds: float) -> None:
        """Record the duration of a run."""
        self._seconds.setdefault((run.task, run.arm), []).append(seconds / run.fraction**0.5)

    def seconds(self, runs: list[Run]) -> float:
        """Return the estimated total seconds of `runs`; a new task or arm gets the overall mean."""
        known = {key: sum(values) / len(values) for key, values in self._seconds.items()}
        if not known:
            return 0.0
        mean = sum(known.values()) / len(known)
        return sum(known.get((run.task, run.arm), mean) * run.fraction**0.5 for run in runs)


def _took(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
