"""`layer-weights ARCHIVE...`: show the layer weights that trained models learned."""

import argparse
import os
from pathlib import Path

from elmo_plugin.commands.arguments import add_shared
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archives",
        nargs="+",
        help="model.tar.gz files, folders of `allennlp train -s`, or files of weights (.th)",
    )
    parser.add_argument(
        "--names", nargs="+", help="names of the archives in the table (default: their folders)"
    )
    parser.add_argument("--plot", help="a file to draw to: .png or .svg (by Matplotlib), or .html")
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    names = args.names or [_name(Path(path)) for path in args.archives]
    if len(names) != len(args.archives):
        raise ValueError(
            f"--names has {len(names)} names, expected {len(args.archives)}: one per archive"
        )
    if args.plot and Path(args.plot).suffix not in (".png", ".svg", ".html"):
        raise ValueError(
            f"--plot is {args.plot}, expected a name that ends with .png, .svg or .html"
        )
    from elmo_plugin.pages.html_page import layer_name, write_page
    from elmo_plugin.pages.learned_mixes import learned_mixes, weights_page

    if args.plot:
        check_output(args.plot, filter(os.path.isfile, args.archives), args.force)
    rows = [
        (f"{name}: {mix.name}", mix)
        for name, path in zip(names, args.archives)
        for mix in learned_mixes(path)
    ]
    width = max(len(label) for label, _ in rows)
    layers = [layer_name(layer) for layer in range(max(len(mix.weights) for _, mix in rows))]
    print(" " * width, *(f"{name:>12}" for name in (*layers, "gamma")))
    for label, mix in rows:
        cells = [f"{weight:.3f}" for weight in mix.weights]
        cells += [""] * (len(layers) - len(cells))
        print(f"{label:{width}}", *(f"{cell:>12}" for cell in (*cells, f"{mix.gamma:.3f}")))
    if not args.plot:
        return
    if args.plot.endswith(".html"):
        write_page(args.plot, [weights_page(rows)])
    else:
        from elmo_plugin.pages.layer_plot import draw

        draw(rows, Path(args.plot))
    print(f"drawn to {args.plot}")


def _name(path: Path) -> str:
    """Return the name of a run's folder, as its label. All runs name their files alike."""
    folder = path.parent if path.is_file() else path
    return os.fsencode(folder.resolve().name).decode(errors="backslashreplace")
