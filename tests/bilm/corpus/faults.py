"""
Random faults while a corpus is embedded, then the same command again; every part must have the
bytes of an undisturbed run.

    python -m tests.bilm.corpus.faults --engine local --count 20
    python -m tests.bilm.corpus.faults --engine ray --count 20

Linux, for /proc. `worker`, `driver` and `raylet` are killed (SIGKILL), at any time from the start
on; `stop` stops a worker (SIGSTOP), whose time-out is short; `disk` gives one worker a limit of the
size of its files, which its writes then meet as they would meet a full disk.
"""

import argparse
import contextlib
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bilm.extraction.test_extract import text
from tests.other_processes import LIMIT
from tests.tiny_bilm import write

FAULTS = {
    "local": ["worker", "stop", "disk", "driver"],
    "ray": ["worker", "stop", "disk", "driver", "raylet"],
}
# No statistics sent; and its processes are as important as the other engine's.
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
# Seconds without a message that are allowed while a worker is to be stopped, and otherwise: on a
# busy machine it takes long to import PyTorch.
TIMEOUT, NEVER = 25, 900


class Corpus:
    """A small corpus, its biLM, and the parts of an undisturbed run."""

    package = Path(__file__).parents[3]

    def __init__(self, folder, lines=900):
        self.folder = folder
        self.shard_tokens = lines  # some fifty parts
        write(folder)
        for seed in range(3):
            (folder / f"{seed}.txt").write_text("".join(f"{x}\n" for x in text(lines, seed, 30)))
        self.end(self.start("local", "expected"), "expected")
        self.expected = digests(folder / "expected")
        assert len(self.expected) > 20

    def start(self, engine, output, address="local", timeout=NEVER):
        """The command; on Ray with a cluster of its own, or that of the address."""
        command = f"embed-corpus *.txt {output} --engine {engine}"
        command += f" --ray-address {address}" if engine == "ray" else ""
        command += " --options-file options.json --weight-file weights.hdf5 --workers 2"
        command += f" --shard-tokens {self.shard_tokens} --max-tokens 200 --timeout {timeout}"
        log = (self.folder / f"{output}.log").open("a")
        return subprocess.Popen(
            [sys.executable, "-m", "elmo_plugin", *command.split()],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.package), "PYTHONFAULTHANDLER": "1", **RAY},
            stdout=log,
            stderr=log,
        )

    def end(self, driver, output):
        """The status with which a run ends; one that hangs fails with where it does."""
        try:
            return driver.wait(LIMIT)
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGABRT)
            driver.wait()
            raise AssertionError(self.log(output)) from None

    def log(self, output):
        return (self.folder / f"{output}.log").read_text()


def digests(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("part-*.parquet"))
    }


def command_lines(root):
    """Of a process's descendants, by their number."""
    parents, found = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            parents[int(path.name)] = int(stat[1])
            found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):  # it has ended
            continue
    below = {root}
    while more := {one for one, parent in parents.items() if parent in below} - below:
        below |= more
    return {one: found[one] for one in below - {root} if one in found}


def processes(root, name):
    marks = {"worker": ("spawn_main", "ray::ShardActor"), "raylet": ("raylet/raylet ",)}[name]
    return [one for one, line in command_lines(root).items() if any(mark in line for mark in marks)]


def in_a_shard(folder):
    """Worker processes that compute: one that stops while it starts is waited for much longer."""
    found = set()
    for path in folder.glob(".*.progress"):
        with contextlib.suppress(OSError):  # the shard is done
            found.update(map(int, re.findall(r"process (\d+) on", path.read_text())))
    return found


def inject(fault, driver, folder, generator):
    """Does it, once there is somebody to do it to; `None` if the run ends before."""
    if fault == "driver":
        driver.kill()
        return f"driver {driver.pid}"
    found = set()
    while not found:
        if driver.poll() is not None:
            return None
        time.sleep(0.01)
        found = set(processes(driver.pid, "raylet" if fault == "raylet" else "worker"))
        if fault == "stop":
            found &= in_a_shard(folder)
    process = generator.choice(sorted(found))
    try:
        if fault == "stop":
            os.kill(process, signal.SIGSTOP)
        elif fault == "disk":
            resource.prlimit(process, resource.RLIMIT_FSIZE, (4000, 4000))
        else:
            os.kill(process, signal.SIGKILL)
    except ProcessLookupError:  # it ended a moment ago
        return None
    return f"process {process}"


def num_parts(folder):
    return len(list(folder.glob("part-*.parquet")))


def wait_for_parts(folder, count, driver):
    """Until there are so many, or the run has ended."""
    while num_parts(folder) < count and driver.poll() is None:
        time.sleep(0.05)


def end_orphans(folder):
    """Workers that were stopped when their driver was killed know nothing of it."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (path / "cmdline").read_bytes()
            if b"spawn_main" in line and (path / "cwd").readlink() == folder:
                os.kill(int(path.name), signal.SIGKILL)


def run_with_faults(corpus, engine, faults, output, generator):
    """
    One after the other, each after some more parts; the command is run again where it has ended
    before all is there, and at the end. Where all is there before the last fault, those that are
    left are for another run: workers whose raylet was killed may finish, for one.

    How many were done, and what was seen, for people; an `AssertionError` where the parts differ.
    """
    folder, timeout = corpus.folder / output, TIMEOUT if "stop" in faults else NEVER
    driver = corpus.start(engine, output, timeout=timeout)
    said, left, starts, waits = [], list(faults), 1, True
    steps = (len(corpus.expected) - 3) // (2 * len(faults))
    while left:
        if driver.poll() is not None:
            over = num_parts(folder) == len(corpus.expected)
            if over and len(left) < len(faults):
                break
            assert starts < 2 * len(faults) + 2, f"no end: {said}, {corpus.log(output)}"
            if over:
                # The machine was faster than the first fault: an empty folder, and no waiting.
                shutil.rmtree(folder)
                waits = False
            else:
                said.append(f"status {driver.returncode}; again")
            driver, starts = corpus.start(engine, output, timeout=timeout), starts + 1
        if waits:
            wait_for_parts(folder, num_parts(folder) + generator.randrange(steps), driver)
            time.sleep(generator.random() * 0.5)
        there = num_parts(folder)
        whom = inject(left[0], driver, folder, generator) if driver.poll() is None else None
        if whom is None:
            continue
        waits, fault = True, left.pop(0)
        said.append(f"{fault}: {whom} after {there} parts")
        if fault in ("driver", "raylet"):
            corpus.end(driver, output)
    said.append(f"status {corpus.end(driver, output)}, {num_parts(folder)} parts")
    assert corpus.end(corpus.start(engine, output), output) == 0, corpus.log(output)
    assert digests(folder) == corpus.expected, corpus.log(output)
    end_orphans(corpus.folder)
    names = {path.name for path in folder.iterdir()} - corpus.expected.keys()
    assert names == {"plan.json", "complete.json"}
    return len(faults) - len(left), "; ".join([*said, "again: the same bytes"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=tuple(FAULTS), required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4, help="in a run and those that go on")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    generator = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(Path(folder))
        print(f"{args.engine}: {len(corpus.expected)} parts", flush=True)
        kinds = FAULTS[args.engine]
        faults = [*kinds, *generator.choices(kinds, k=args.count)][: args.count]
        generator.shuffle(faults)
        number = 0
        while number < args.count:
            start = time.monotonic()
            some = faults[number : number + args.at_once]
            done, said = run_with_faults(corpus, args.engine, some, f"out{number}", generator)
            print(f"{number + 1:3} {said} ({time.monotonic() - start:.0f} s)", flush=True)
            number += done


if __name__ == "__main__":
    main()
