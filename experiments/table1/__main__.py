"""
`python -m experiments.table1 DATA OUT` trains the models of Table 1 with and without ELMo, and
writes the table. To resume an interrupted command, run it again.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from elmo_plugin import __version__
from elmo_plugin.commands import Command
from experiments.table1.plan import VARIANTS
from experiments.table1.tasks import TASKS

# Default number of seeds of each task, for the baseline and for ELMo alike.
SEEDS = 3
# Maximum number of dev instances with `--quick`.
QUICK_DEV = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `python -m experiments.table1`."""
    parser.add_argument("data", help="folder with the data sets' folders: wikigold, sst5, ...")
    parser.add_argument("out", help="the table's folder, made if missing")
    parser.add_argument(
        "--tasks",
        type=_tasks,
        default=list(TASKS),
        metavar="NAME,NAME",
        help=f"of {', '.join(TASKS)} (default: all)",
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        default=[],
        metavar="N|NAME=N",
        help=f"number of seeds, for all or single tasks: 3 ner=5 sst5=5 (default: {SEEDS})",
    )
    parser.add_argument(
        "--fraction",
        type=float,
        nargs="+",
        default=[1.0],
        help="fractions of the training set; several give Figure 1 (default: 1)",
    )
    parser.add_argument(
        "--variants",
        nargs="+",
        choices=tuple(VARIANTS),
        default=[],
        help="also train Table 2 (mix), Table 3 (placement), other states between batches (state)",
    )
    parser.add_argument(
        "--variant-seeds",
        type=int,
        metavar="N",
        help="maximum number of seeds for variants and smaller fractions (default: none)",
    )
    parser.add_argument(
        "--vectors", help="word vectors for both rows (default: DATA/vectors.txt.gz)"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="number of runs at a time (default: number of cores)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one seed, a tenth of the training set, at most {QUICK_DEV:,} dev instances",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="train nothing, write the table of the runs that are complete",
    )
    parser.add_argument(
        "--known",
        metavar="RUNS_CSV",
        help="runs.csv of another table, whose runs are used and not made again",
    )
    parser.add_argument(
        "-o", "--overrides", default="{}", help="overrides of the configs, as for `allennlp train`"
    )


def _tasks(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in TASKS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no task, expected one of {', '.join(TASKS)}"
            )
    return list(dict.fromkeys(names))


def run(args: argparse.Namespace) -> None:
    """
    Train all runs that are not complete, and write the table and its plots. Runs that fail end in a
    `ValueError`, after the table is written.
    """
    import elmo_plugin.plugin  # noqa: F401
    from elmo_plugin.bilm.files.folder_lock import locked_folder
    from elmo_plugin.bilm.kernels.machine import model_name
    from experiments.table1 import figures, report, results
    from experiments.table1.plan import check_data, config, plan
    from experiments.table1.runner import train

    given, fractions = (["1"], [0.1]) if args.quick else (args.seeds, args.fraction)
    seeds = _seeds(given, args.tasks)
    if args.processes < 1:
        raise ValueError(f"--processes is {args.processes}, expected at least 1")
    if args.variant_seeds is not None and args.variant_seeds < 1:
        raise ValueError(f"--variant-seeds is {args.variant_seeds}, expected at least 1")
    for fraction in fractions:
        if not 0 < fraction <= 1:
            raise ValueError(f"--fraction is {fraction}, expected above 0 and at most 1")
    try:
        overrides = json.loads(args.overrides)
    except json.JSONDecodeError as error:
        raise ValueError(f"--overrides is {args.overrides!r}, expected JSON: {error}") from error
    if not isinstance(overrides, dict):
        raise ValueError(f"--overrides is {args.overrides!r}, expected an object")
    if args.quick:
        overrides = {"validation_dataset_reader.max_instances": QUICK_DEV, **overrides}
    data, out = str(Path(args.data).resolve()), Path(args.out).resolve()
    vectors = str(Path(args.vectors or Path(data, "vectors.txt.gz")).resolve())
    lines = check_data(args.tasks, data, vectors)
    print("\n".join(lines), flush=True)
    runs = plan(args.tasks, seeds, fractions, args.variants, args.variant_seeds)
    known = results.read_known(Path(args.known)) if args.known else results.NONE_KNOWN
    if args.report and not args.known and not out.is_dir():
        raise ValueError(f"{out} is not there, expected a table's folder to report on")
    out.mkdir(parents=True, exist_ok=True)
    results.check_nothing_is_lost(runs, out, known, trains=not args.report)
    if not args.report:
        with locked_folder(out):
            train(
                [one for one in runs if one not in known.results],
                out,
                lambda one: config(one, data, vectors, overrides, longer=not args.quick),
                args.processes,
                say=lambda line: print(line, flush=True),
            )
    # With `--report`, another version of the package may have trained the runs.
    about = {"reported by" if args.report else "elmo_plugin": f"{__version__} {_commit()}".strip()}
    if not args.report:
        about["machine"] = f"{model_name()}, {args.processes} processes of one thread"
    if args.known:
        about["runs made elsewhere"] = (
            f"{sum(one in known.results for one in runs)}, of {args.known}"
        )
    text = report.write(runs, out, about, known)
    drawn = [figures.learning_curves(runs, out, known), figures.layer_weights(runs, out, known)]
    written = [out / "table.md", out / "runs.csv", *(path for path in drawn if path)]
    print(f"\n{text}\n{', '.join(map(str, written))}", flush=True)
    failed = sum(results.read(one, out, known).failed for one in runs)
    if failed:
        raise ValueError(f"{failed} of {len(runs)} runs failed; the same command tries them again")


def _seeds(texts: list[str], tasks: list[str]) -> dict[str, int]:
    """
    Parse the arguments of `--seeds` into the number of seeds of each task. `N` applies to all
    tasks, and `TASK=N` to one. Later arguments override earlier ones.
    """
    seeds = dict.fromkeys(tasks, SEEDS)
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not number.isdecimal() or int(number) < 1 or (equals and name not in TASKS):
            raise ValueError(
                f"--seeds has {text!r}, expected a number above 0, or one for a task: ner=5"
            )
        seeds.update(dict.fromkeys([name] if equals else tasks, int(number)))
    return seeds


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with `arguments`, which default to this process's command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.table1", description=__doc__)
    add_arguments(parser)
    Command(run.__module__, "").run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
