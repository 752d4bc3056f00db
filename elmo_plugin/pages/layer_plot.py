"""Plot of learned layer weights, drawn with Matplotlib."""

from itertools import zip_longest
from pathlib import Path

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.pages.html_page import layer_name
from elmo_plugin.pages.learned_mixes import LearnedMix


def draw(rows: list[tuple[str, LearnedMix]], path: Path) -> None:
    """
    Draw layer weights as a heat map (Peters et al. 2018, figure 2) and write it to `path`, a `.png`
    or `.svg` file. `rows` has a pair `(label, LearnedMix)` for each scalar mix. The map has a
    column for each mix and a row for each layer, with the lowest layer at the bottom.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    grid = list(zip_longest(*(mix.weights for _, mix in rows), fillvalue=float("nan")))
    # In a figure of less than 5.2 inches, the title would be cut off.
    width = max(5.2, 2 + 0.9 * len(rows))
    figure = Figure(figsize=(width, 1.6 + 0.6 * len(grid)), layout="constrained")
    (FigureCanvasSVG if path.suffix == ".svg" else FigureCanvasAgg)(figure)
    axes = figure.subplots()
    image = axes.imshow(grid, origin="lower", vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for column, (_, mix) in enumerate(rows):
        for layer, weight in enumerate(mix.weights):
            color = "white" if weight > 0.6 else "black"
            axes.text(column, layer, f"{weight:.2f}", ha="center", va="center", color=color)
    axes.set_yticks(range(len(grid)), list(map(layer_name, range(len(grid)))))
    labels = [f"{label}\nγ = {mix.gamma:.2f}" for label, mix in rows]
    axes.set_xticks(range(len(rows)), labels, rotation=30, ha="right", parse_math=False)
    axes.set_title("Learned weights of the biLM's layers")
    figure.colorbar(image, ax=axes)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)
