"""Plots like Figures 1 and 2 of Peters et al. 2018, drawn from the runs of a table."""

from pathlib import Path
from statistics import mean, stdev

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.pages.layer_plot import draw as draw_layers
from experiments.table1.plan import BASELINE, ELMO, Run
from experiments.table1.results import NONE_KNOWN, Known, chosen, mixes_of, read
from experiments.table1.tasks import TASKS


def learning_curves(runs: list[Run], out: Path, known: Known = NONE_KNOWN) -> Path | None:
    """
    Draw Figure 1: scores against the fraction of the training set, with a panel for each task.
    Return the path of `figure1.svg`, or `None` if no task was trained on several fractions.
    """
    results = [one for one in (read(run, out, known) for run in runs) if one.score is not None]
    points: dict[str, dict[str, list[tuple[float, list[float]]]]] = {}
    for task in dict.fromkeys(one.run.task for one in results):
        for arm in (BASELINE, ELMO):
            for fraction in sorted({one.run.fraction for one in results if one.run.task == task}):
                scores = [one.score or 0.0 for one in chosen(results, task, arm, fraction)]
                if scores:
                    points.setdefault(task, {}).setdefault(arm, []).append((fraction, scores))
    points = {task: arms for task, arms in points.items() if max(map(len, arms.values())) > 1}
    if not points:
        return None
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(points), 3.2), layout="constrained")
    canvas = FigureCanvasSVG(figure)
    panels = figure.subplots(1, len(points), squeeze=False)[0]
    for axes, (task, arms) in zip(panels, points.items(), strict=True):
        for arm, curve in arms.items():
            axes.errorbar(
                [100 * fraction for fraction, _ in curve],
                [mean(scores) for _, scores in curve],
                [stdev(scores) if len(scores) > 1 else 0.0 for _, scores in curve],
                marker="o",
                capsize=3,
                label="with ELMo" if arm == ELMO else "baseline",
            )
        axes.set_xscale("log")
        percents = sorted({100 * fraction for curve in arms.values() for fraction, _ in curve})
        axes.set_xticks(percents, [f"{one:g}" for one in percents])
        axes.minorticks_off()
        axes.set_title(TASKS[task].title)
        axes.set_xlabel("% of the training set")
        axes.legend(loc="lower right")
    figure.axes[0].set_ylabel("score")
    path = out / "figure1.svg"
    with atomic_write(path) as aside:
        canvas.print_svg(str(aside))
    return path


def layer_weights(runs: list[Run], out: Path, known: Known = NONE_KNOWN) -> Path | None:
    """
    Draw Figure 2: the layer weights after the softmax, for one run of each task. This is the run
    with the lowest seed on the largest fraction of the training set. Return the path of
    `figure2.svg`, or `None` if no run's weights are known.
    """
    found = mixes_of((run for run in runs if run.arm == ELMO), out, known)
    rows = []
    for task in dict.fromkeys(run.task for run in runs):
        some = [run for run in found if run.task == task]
        if not some:
            continue
        mixes = found[max(some, key=lambda run: (run.fraction, -run.seed))]
        places = ["input", "output"] if len(mixes) == 2 else [""]
        rows += [
            (f"{TASKS[task].title} {place}".strip(), mix)
            for place, mix in zip(places, mixes, strict=False)
        ]
    if not rows:
        return None
    path = out / "figure2.svg"
    draw_layers(rows, path)
    return path
