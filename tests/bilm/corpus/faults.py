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
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bilm.extraction.test_extract import text
from tests.tiny_bilm import write

FAULTS = {
    "local": ["worker", "stop", "disk", "driver"],
    "ray": ["worker", "stop", "disk", "driver", "raylet"],
}
TIMEOUT = 6
MOST_SECONDS = 400


class Corpus:
    """A small corpus, its biLM, and the parts of an undisturbed run."""

    package = Path(__file__).parents[3]

    def __init__(self, folder, lines=600):
        self.folder = folder
        self.shard_tokens = lines * 5 // 3  # some thirty parts
        write(folder)
        for seed in range(3):
            (folder / f"{seed}.txt").write_text("".join(f"{x}\n" for x in text(lines, seed, 30)))
        self.start("local", "expected").wait(MOST_SECONDS)
        self.expected = digests(folder / "expected")
        assert len(self.expected) > 20

    def start(self, engine, output, address="local"):
        """The command; on Ray with a cluster of its own, or that of the address."""
        command = ["embed-corpus", "*.txt", output, "--engine", engine, "--workers", "2"]
        command += [
            "--shard-tokens",
            str(self.shard_tokens),
            "--max-tokens",
            "200",
            "--timeout",
            str(TIMEOUT),
        ]
        command += ["--options-file", "options.json", "--weight-file", "weights.hdf5"]
        command += ["--ray-address", address]
        log = (self.folder / f"{output}.log").open("a")
        return subprocess.Popen(
            [sys.executable, "-m", "elmo_plugin", *command],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(self.package),
                "RAY_USAGE_STATS_ENABLED": "0",
            },
            stdout=log,
            stderr=log,
        )

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


def inject(fault, driver, generator):
    """Does it, once there is somebody to do it to."""
    if fault == "driver":
        driver.kill()
        return f"driver {driver.pid}"
    while not (found := processes(driver.pid, "raylet" if fault == "raylet" else "worker")):
        assert driver.poll() is None, "nobody was there"
        time.sleep(0.05)
    process = generator.choice(sorted(found))
    if fault == "stop":
        os.kill(process, signal.SIGSTOP)
    elif fault == "disk":
        resource.prlimit(process, resource.RLIMIT_FSIZE, (4000, 4000))
    else:
        os.kill(process, signal.SIGKILL)
    return f"process {process}"


def wait_for_parts(folder, count, driver):
    """Until there are so many, or the run has ended."""
    while len(list(folder.glob("part-*.parquet"))) < count and driver.poll() is None:
        time.sleep(0.02)


def run_with_fault(corpus, engine, fault, output, generator):
    """What was done and seen, for people; raises an `AssertionError` where the parts differ."""
    folder = corpus.folder / output
    driver = corpus.start(engine, output)
    count = generator.randrange(len(corpus.expected) - 3)
    wait_for_parts(folder, count, driver)
    time.sleep(generator.random() * 0.5)
    assert driver.poll() is None, f"it was over before the fault: {corpus.log(output)}"
    there = len(list(folder.glob("part-*.parquet")))
    whom = inject(fault, driver, generator)
    first = driver.wait(MOST_SECONDS)
    after = len(list(folder.glob("part-*.parquet")))
    again = corpus.start(engine, output).wait(MOST_SECONDS)
    assert again == 0, corpus.log(output)
    assert digests(folder) == corpus.expected, corpus.log(output)
    names = {path.name for path in folder.iterdir()} - corpus.expected.keys()
    assert names == {"plan.json", "complete.json"}
    return (
        f"{fault:7} {whom:15} after {there:2} parts; status {first:3}, {after} parts; again: whole"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=tuple(FAULTS), required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    generator = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(Path(folder))
        print(f"{args.engine}: {len(corpus.expected)} parts", flush=True)
        kinds = FAULTS[args.engine]
        for number in range(args.count):
            fault = kinds[number] if number < len(kinds) else generator.choice(kinds)
            start = time.monotonic()
            said = run_with_fault(corpus, args.engine, fault, f"out{number}", generator)
            print(f"{number + 1:3} {said} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
