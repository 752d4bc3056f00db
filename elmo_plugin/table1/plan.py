"""Which runs a table takes, and the whole config of each."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmo_plugin.commands.configs import IN_WHEEL, PACKAGE
from elmo_plugin.table1.tasks import TASKS, Task

BASELINE, ELMO = "baseline", "elmo"
# What `--variants` adds to `ELMO`: how the layers are mixed (Table 2), where ELMo stands (Table 3),
# what the biLM's state is between batches (not in the paper).
VARIANTS = {
    "mix": ("last", "lambda-1", "lambda-0.001"),
    "placement": ("output", "both"),
    "state": ("carry", "reset"),
}
STATES = VARIANTS["state"]


class Run(NamedTuple):
    """
    `task`: a key of `TASKS`. `arm`: `BASELINE`, `ELMO`, or a variant of it. `fraction`: of the
    training instances. `seed`: of the three libraries, and of the instances that are kept.
    """

    task: str
    arm: str
    fraction: float
    seed: int

    @property
    def folder(self) -> Path:
        """Where it is, below the table's folder."""
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
    # Parameters

    tasks : `Sequence[str]`
        Keys of `TASKS`.
    seeds : `int | Mapping[str, int]`
        How many, or how many of each task; they are 1, 2, ...
    fractions : `Sequence[float]`, optional (default = `(1.0,)`)
        Of the training instances.
    variants : `Sequence[str]`, optional (default = `()`)
        Keys of `VARIANTS`; runs on the largest fraction.
    variant_seeds : `Optional[int]`, optional (default = `None`)
        How many seeds the variants and the smaller fractions have at most; `None`: as many as the
        rest.

    # Returns

    `List[Run]`
        In the order to train them: every task's two arms before any task's second seed, so that a
        table can be read early; then the smaller fractions and the variants.
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
    # Parameters

    run : `Run`
    data : `str`
        The folder of the stand-ins' folders.
    vectors : `str`
        The file of the stand-ins' word vectors.
    overrides : `Optional[Mapping[str, Any]]`, optional (default = `None`)
        As `allennlp train -o` takes them; they come last.
    longer : `bool`, optional (default = `True`)
        Whether a part of the training set has more epochs, and more of them without a better score,
        than the whole, by `1 / sqrt(fraction)`: an epoch has fewer updates, and a baseline may need
        some before it has any score.

    # Returns

    `Dict[str, Any]`
        What `allennlp train` takes, without anything to be imported or filled in.
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
    """The jsonnet file that `run` begins from."""
    task: Task = TASKS[run.task]
    root = (IN_WHEEL if IN_WHEEL.is_dir() else PACKAGE.parent) / "training_config"
    name = task.config
    if run.arm != BASELINE:
        name += f"_elmo_{run.arm}" if run.arm in task.placements else "_elmo"
    return root / ("table1" if task.has_paper_data else "stand_in") / f"{name}.jsonnet"


def _change(values: dict[str, Any], arm: str) -> None:
    """Makes the config with ELMo that of a variant."""
    elmo = next(_elmos(values["model"]))
    if arm == "last":
        elmo["scalar_mix_parameters"] = [-9e10, -9e10, 1]
    elif arm.startswith("lambda-"):
        penalty = {"type": "l2", "alpha": float(arm.removeprefix("lambda-"))}
        values["model"]["regularizer"] = {"regexes": [["scalar_parameters", penalty]]}
    elif arm in STATES:
        elmo["state"] = arm
        if arm == "carry":  # a sentence's vectors are not the same twice
            elmo.pop("cache", None)


def _elmos(values: Any) -> Iterator[dict[str, Any]]:
    """The parts of a model's config that make an ELMo."""
    if isinstance(values, dict):
        if "pretrained_file" in values and "options" in values:
            yield values
        for part in values.values():
            yield from _elmos(part)


def check_data(tasks: Sequence[str], data: str, vectors: str) -> list[str]:
    """
    # Returns

    `List[str]`
        A line for each task: which data it is trained on.

    # Raises

    `ValueError`
        If the paper's data is not where the environment says, or a stand-in's folder or the word
        vectors are not there.
    """
    lines = []
    for name in tasks:
        task = TASKS[name]
        if task.has_paper_data:
            for variable in task.variables:
                _check_given(variable)
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
                "results/word_vectors/train.py makes (see its README.md); --vectors names another"
            )
        lines.append(f"{name}: the stand-in {task.data}")
    return lines


def _check_given(variable: str) -> None:
    """A path of the environment's; what AllenNLP fetches, or takes from an archive, is its own."""
    path = os.environ[variable]
    if "://" not in path and "!" not in path and not Path(path).exists():
        raise ValueError(
            f"the environment's {variable} is {path}, which is not there, expected the paper's data"
        )


def to_text(values: Mapping[str, Any]) -> str:
    """A config as it is kept in a run's folder, the same for the same config."""
    return json.dumps(values, indent=2, sort_keys=True) + "\n"
