"""Trains the runs of a plan, several at a time, and goes on with what was begun before."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.table1.one_run import CONFIG, FAILED, LOG, TRAINING, is_whole
from elmo_plugin.table1.plan import Run, to_text

# How often a process is looked at, in seconds.
PAUSE = 0.5


def train(
    runs: list[Run],
    out: Path,
    make_config: Callable[[Run], dict[str, Any]],
    processes: int,
    say: Callable[[str], None] = print,
) -> None:
    """
    Skips the runs that are whole and goes on with those that were begun. One that fails leaves
    `failed.txt` and does not stop the others; the next call tries it again. Ctrl-C asks each
    process to save, and waits for that.

    # Parameters

    runs : `list[Run]`
        In the order to begin them.
    out : `Path`
        The table's folder.
    make_config : `Callable[[Run], dict[str, Any]]`
        The whole config of a run.
    processes : `int`
        How many at a time, one thread each.
    say : `Callable[[str], None]`, optional (default = `print`)
        Takes a line about each run that ends.

    # Raises

    `ValueError`
        If a run's folder was made from another config.
    """
    for run in runs:
        _write_config(run, out / run.folder, make_config(run))
    waiting = [run for run in runs if not is_whole(out / run.folder)]
    if len(waiting) < len(runs):
        say(f"{len(runs) - len(waiting)} of {len(runs)} runs are whole already")
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
                if is_whole(out / run.folder):
                    estimate.add(run, seconds)
                    text = _took(seconds)
                else:
                    text = _note_failure(out / run.folder, process.returncode)
                left = estimate.seconds([*waiting, *running]) / processes
                say(f"[{done}/{len(runs)}] {run}: {text}; {_took(left)} left at this pace")
    finally:
        for process in running.values():
            process.terminate()  # it saves at the end of its batch
        for process in running.values():
            process.wait()


def _write_config(run: Run, folder: Path, values: Mapping[str, Any]) -> None:
    text = to_text(values)
    path = folder / CONFIG
    if path.exists():
        if path.read_text("utf-8") != text:
            raise ValueError(
                f"{path} is of other settings or data than this run's ({run}), expected the same; "
                "give another folder, or remove this one"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as aside:
        aside.write_text(text, "utf-8")


def _start(folder: Path) -> "subprocess.Popen[bytes]":
    (folder / FAILED).unlink(missing_ok=True)
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "elmo_plugin.table1.one_run", str(folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            # A terminal's Ctrl-C is for the table, which asks once: a run ends at once when it is
            # asked a second time.
            start_new_session=True,
        )


def _note_failure(folder: Path, status: int) -> str:
    lines = (folder / LOG).read_text("utf-8", "replace").strip().splitlines()
    last = lines[-1][-500:] if lines else "no output"
    text = f"failed with status {status}: {last} (see {folder / LOG})"
    with whole_file(folder / FAILED) as aside:
        aside.write_text(text + "\n", "utf-8")
    return text


class Estimate:
    """
    Seconds that are left: a run takes what others of its task and arm took, by its fraction.

    # Parameters

    runs : `list[Run]`
        Those that are whole say what they took.
    out : `Path`
        The table's folder.
    """

    def __init__(self, runs: list[Run], out: Path) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = {}
        for run in runs:
            if is_whole(out / run.folder):
                metrics = json.loads((out / run.folder / TRAINING / "metrics.json").read_text())
                self.add(run, in_seconds(metrics["training_duration"]))

    def add(self, run: Run, seconds: float) -> None:
        """Notes what one took."""
        self._seconds.setdefault((run.task, run.arm), []).append(seconds / run.fraction**0.5)

    def seconds(self, runs: list[Run]) -> float:
        """For these, one after the other; what is not known is the mean of what is."""
        known = {key: sum(values) / len(values) for key, values in self._seconds.items()}
        if not known:
            return 0.0
        mean = sum(known.values()) / len(known)
        return sum(known.get((run.task, run.arm), mean) * run.fraction**0.5 for run in runs)


def in_seconds(duration: str) -> float:
    """`1 day, 2:03:04.5`, as AllenNLP writes a time, in seconds."""
    days, _, clock = duration.rpartition(", ")
    hours, minutes, seconds = (float(part) for part in clock.split(":"))
    whole_days = float(days.split()[0]) if days else 0.0
    return ((whole_days * 24 + hours) * 60 + minutes) * 60 + seconds


def _took(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
