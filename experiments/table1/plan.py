"""Training runs that a table needs, and their configs."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.table1.tasks import TASKS, Task

HERE = Path(__file__).parent
CONFIGS, PAPER_CONFIGS = HERE / "configs", HERE.parents[1] / "training_config" / "table1"
BASELINE, ELMO = "baseline", "elmo"
# `--variants` of `ELMO`: how the layers are mixed (Table 2), where ELMo is added (Table 3), and the
# biLM's state between batches (not in the paper).
VARIANTS = {
    "mix": ("last", "lambda-1", "lambda-0.001"),
    "placement": ("output", "both"),
    "state": ("carry", "reset"),
}


class Run(NamedTuple):
    """One training run."""

    task: str  # a key of `TASKS`
    arm: str  # `BASELINE`, `ELMO`, or a variant of `ELMO`
    fraction: float  # of the training instances
    seed: int  # of `random`, NumPy and PyTorch, and of the choice of instances

    @property
    def folder(self) -> Path:
        """Path of the run's folder, relative to the table's folder."""
        return Path(self.task, f"{self.arm}-{self.fraction:g}-seed{self.seed}")

    def __str__(self) -> str:
        part = "" if self.fraction == 1 else f", {self.fraction:g} of the training set"
        return f"{self.task}, {self.arm}, seed {self.seed}{part}"


def plan(
    tasks: Sequence[str],
    seeds: int | Mapping[str, int],
    fractions: Sequence[float] = (1.0,),
    variants: Sequence[str] = (),
    variant_seeds: int | None = None,
) -> list[Run]:
    """
    Return the runs of a table in training order. The runs of all tasks with the first seed come
    first, then those with the second seed, so that an unfinished table is useful. Smaller fractions
    of the training set and variants of ELMo come last.

    `seeds` is the number of seeds, for all tasks or by task. `variants` are keys of `VARIANTS`,
    which train on the largest fraction. `variant_seeds` is the maximum number of seeds for them and
    for smaller fractions.
    """
    numbers = dict.fromkeys(tasks, seeds) if isinstance(seeds, int) else seeds
    most = max(numbers[task] for task in tasks)
    of_seed = {n: [task for task in tasks if n <= numbers[task]] for n in range(1, 1 + most)}
    largest, *smaller = sorted(set(fractions), reverse=True)
    arms = (BASELINE, ELMO)
    runs = [
        Run(task, arm, largest, n) for n, some in of_seed.items() for task in some for arm in arms
    ]
    for n in range(1, 1 + min(most, variant_seeds or most)):
        runs += [Run(task, arm, part, n) for part in smaller for task in of_seed[n] for arm in arms]
        runs += [
            Run(task, arm, largest, n)
            for task in of_seed[n]
            for kind in dict.fromkeys(variants)
            for arm in VARIANTS[kind]
            if kind != "placement" or arm in _placements(TASKS[task])
        ]
    return runs


def _placements(task: Task) -> tuple[str, ...]:
    return () if task.has_paper_data else task.placements


def config(
    run: Run,
    data: str,
    vectors: str,
    overrides: Mapping[str, Any] | None = None,
    longer: bool = True,
) -> dict[str, Any]:
    """
    Return the config of a run for `allennlp train`, with fraction, seed and overrides applied.

    `data` is the folder with the folders of the free data sets, `vectors` the file of the word
    vectors for these. With `longer`, epochs and patience are multiplied by `1 / sqrt(fraction)`,
    because an epoch on a fraction of the training set has fewer updates.
    """
    from allennlp.common import Params
    from allennlp.common.params import with_overrides

    variables = {"STAND_IN_DATA": data, "STAND_IN_VECTORS": vectors}
    values = Params.from_file(str(_source(run)), ext_vars=variables).as_dict(quiet=True)
    if run.arm != BASELINE:
        _change(values, run.arm)
    if run.fraction != 1:
        values.setdefault("validation_dataset_reader", values["dataset_reader"])
        values["dataset_reader"] = {
            "type": "sampled",
            "reader": values["dataset_reader"],
            "fraction": run.fraction,
            "seed": run.seed,
        }
        trainer = values["trainer"]
        for name in ("num_epochs", "patience"):
            if longer and trainer.get(name):
                trainer[name] = math.ceil(trainer[name] / math.sqrt(run.fraction))
    values |= {f"{name}_seed": run.seed for name in ("random", "numpy", "pytorch")}
    if values.get("test_data_path"):
        values["evaluate_on_test"] = True
    return with_overrides(values, dict(overrides or {}))


def _source(run: Run) -> Path:
    task = TASKS[run.task]
    name = task.config
    if run.arm != BASELINE:
        name += f"_elmo_{run.arm}" if run.arm in task.placements else "_elmo"
    return (PAPER_CONFIGS if task.has_paper_data else CONFIGS) / f"{name}.jsonnet"


def _change(values: dict[str, Any], arm: str) -> None:
    """Change a config with ELMo, in place, into the config of the variant `arm`."""
    elmo = next(_elmos(values["model"]))
    if arm == "last":
        elmo["scalar_mix_parameters"] = [-9e10, -9e10, 1]
    elif arm.startswith("lambda-"):
        penalty = {"type": "l2", "alpha": float(arm.removeprefix("lambda-"))}
        values["model"]["regularizer"] = {"regexes": [["scalar_parameters", penalty]]}
    elif arm in VARIANTS["state"]:
        elmo["state"] = arm
        if arm == "carry":  # vectors cannot be cached, because they differ each time
            elmo.pop("cache", None)


def _elmos(values: Any) -> Iterator[dict[str, Any]]:
    if isinstance(values, dict):
        if "pretrained_file" in values and "options" in values:
            yield values
        for part in values.values():
            yield from _elmos(part)


def check_data(tasks: Sequence[str], data: str, vectors: str) -> list[str]:
    """
    Return a line of text for each task, which names its data set. Raise a `ValueError` if the word
    vectors or a task's data are missing.
    """
    lines = []
    for name in tasks:
        task = TASKS[name]
        if task.has_paper_data:
            for variable in task.variables:
                path = os.environ[variable]
                # Do not check URLs and paths into archives, which AllenNLP accepts.
                if "://" not in path and "!" not in path and not Path(path).exists():
                    raise ValueError(
                        f"the environment's {variable} is {path}, which is not there, expected the "
                        "paper's data"
                    )
            lines.append(f"{name}: the paper's data, from {', '.join(task.variables)}")
            continue
        if not Path(data, task.folder).is_dir():
            given = f", or the environment's {', '.join(task.variables)}" if task.variables else ""
            raise ValueError(
                f"{Path(data, task.folder)} is not there, expected the folder of {task.data} for "
                f"the task {name}{given}"
            )
        if not Path(vectors).is_file():
            raise ValueError(
                f"the word vectors {vectors} are not there, expected the file that "
                "experiments/word_vectors.py makes; --vectors names another"
            )
        lines.append(f"{name}: the stand-in {task.data}")
    return lines


def to_text(values: Mapping[str, Any]) -> str:
    """Return a config as JSON with sorted keys, so that equal configs give equal texts."""
    return json.dumps(values, indent=2, sort_keys=True) + "\n"
