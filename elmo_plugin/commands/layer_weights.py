"""`layer-weights ARCHIVE... [--plot FILE]`: what trained models made of the layers (Figure 2)."""

import argparse
import io
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

MIX = re.compile(r"(?P<mix>.*)\.scalar_parameters\.(?P<layer>\d+)")
WEIGHTS = "weights.th"


class LearnedMix(NamedTuple):
    """
    `name`: the module's, in its model. `weights`: after the softmax, token layer first; they sum to
    1. `gamma`: what their sum is multiplied by.
    """

    name: str
    weights: list[float]
    gamma: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`archives`, `--names`, `--plot`."""
    parser.add_argument(
        "archives",
        nargs="+",
        help="model.tar.gz files, folders of `allennlp train -s`, or files of weights (.th)",
    )
    parser.add_argument("--names", nargs="+", help="what to call the archives (default: folders)")
    parser.add_argument("--plot", help="a file to draw to: .png or .svg")
    parser.add_argument("--force", action="store_true", help="replace a plot that exists")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If an archive holds no weights that can be read safely, or no mix of layers.
    """
    names = args.names or [_name(Path(path)) for path in args.archives]
    if len(names) != len(args.archives):
        raise ValueError(
            f"--names has {len(names)} names, expected {len(args.archives)}: one an archive"
        )
    if args.plot:
        if Path(args.plot).suffix not in (".png", ".svg"):
            raise ValueError(f"--plot is {args.plot}, expected a name that ends with .png or .svg")
        if Path(args.plot).exists() and not args.force:
            raise ValueError(f"{args.plot} exists, expected a new file; --force replaces it")
    rows = [
        (f"{name}: {mix.name}", mix)
        for name, path in zip(names, args.archives)
        for mix in learned_mixes(path)
    ]
    width = max(len(label) for label, _ in rows)
    layers = max(len(mix.weights) for _, mix in rows)
    print(" " * width, *(f"{_layer(layer):>7}" for layer in range(layers)), f"{'gamma':>7}")
    for label, mix in rows:
        cells = [f"{weight:7.3f}" for weight in mix.weights]
        cells += [" " * 7] * (layers - len(cells))
        print(f"{label:{width}}", *cells, f"{mix.gamma:7.3f}")
    if args.plot:
        draw(rows, Path(args.plot))
        print(f"drawn to {args.plot}")


def learned_mixes(path: str) -> list[LearnedMix]:
    """
    # Parameters

    path : `str`
        An archive, a serialization folder or a file of weights. Nothing in it is executed.

    # Returns

    `list[LearnedMix]`
        Every mix of a biLM's layers in it, as they come in the model.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it holds no weights that can be read safely, or no mix.
    """
    parameters = parameters_in(Path(path))
    try:
        mixes = mixes_in(parameters)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not mixes:
        raise ValueError(
            f"{path} holds no scalar_parameters among its {len(parameters)} tensors, expected a "
            "model with ELMo"
        )
    return mixes


def mixes_in(parameters: Mapping[str, Any]) -> list[LearnedMix]:
    """
    Of a model's parameters by name; none, if it is one without ELMo.

    # Raises

    `ValueError`
        If a weight or γ is not of shape `(1,)`.
    """
    import torch

    mixes: dict[str, dict[int, torch.Tensor]] = {}
    for key, value in parameters.items():
        found = MIX.fullmatch(str(key))
        if found and (scale := f"{found['mix']}.gamma") in parameters:
            for place in (key, scale):
                shape = tuple(getattr(parameters[place], "shape", ()))
                if shape != (1,):
                    raise ValueError(f"{place} has the shape {shape}, expected (1,)")
            mixes.setdefault(found["mix"], {})[int(found["layer"])] = value
    result = []
    for name, by_layer in mixes.items():
        before = torch.cat([by_layer[layer].float() for layer in sorted(by_layer)])
        gamma = float(parameters[f"{name}.gamma"])
        result.append(LearnedMix(_short(name), torch.softmax(before, dim=0).tolist(), gamma))
    return result


def parameters_in(path: Path) -> dict[str, Any]:
    """
    A model's, by name; nothing in the file is executed.

    # Raises

    `FileNotFoundError`, `ValueError`
        As `learned_mixes`.
    """
    import torch

    if path.is_dir():
        files = [path / "model.tar.gz", path / "best.th"]
        found = [file for file in files if file.is_file()]
        if not found:
            raise ValueError(f"{path} holds neither {files[0].name} nor {files[1].name}")
        path = found[0]
    content: Any = path
    if path.name.endswith(".gz"):
        try:
            with tarfile.open(path, "r:gz") as archive:
                member = archive.extractfile(WEIGHTS)
                assert member is not None
                content = io.BytesIO(member.read())
        except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is no archive with {WEIGHTS} in it: {error}") from error
    try:
        parameters = torch.load(content, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: the weights cannot be read safely: {reason}") from error
    if not isinstance(parameters, dict):
        raise ValueError(f"{path} holds a {type(parameters).__name__}, expected parameters by name")
    return parameters


def _short(name: str) -> str:
    """
    `text_field_embedder.token_embedder_elmo._elmo.scalar_mix_0` -> `input`; a model's own
    `_elmo.scalar_mix_1` -> `elmo 1` (0 is the input and 1 the output, where it has both).
    """
    if name.startswith("text_field_embedder."):
        return "input"
    return name.lstrip("_").replace(".scalar_mix_", " ")


def _name(path: Path) -> str:
    """The folder, where the file's name says nothing."""
    return path.parent.resolve().name if path.is_file() else path.resolve().name


def _layer(layer: int) -> str:
    return "token" if layer == 0 else f"LSTM {layer}"


def draw(rows: list[tuple[str, LearnedMix]], path: Path) -> None:
    """
    Draws weights as the paper's Figure 2 does: a column a mix, a row a layer, the lowest below.

    # Parameters

    rows : `list[tuple[str, LearnedMix]]`
        Labels and mixes.
    path : `Path`
        `.png` or `.svg`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    from elmo_plugin.bilm.files.whole_file import whole_file

    layers = max(len(mix.weights) for _, mix in rows)
    figure = Figure(figsize=(2 + 0.9 * len(rows), 1.6 + 0.6 * layers), layout="constrained")
    (FigureCanvasSVG if path.suffix == ".svg" else FigureCanvasAgg)(figure)
    axes = figure.subplots()
    missing = float("nan")
    grid = [
        [mix.weights[layer] if layer < len(mix.weights) else missing for _, mix in rows]
        for layer in range(layers)
    ]
    image = axes.imshow(grid, origin="lower", vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for column, (_, mix) in enumerate(rows):
        for layer, weight in enumerate(mix.weights):
            color = "white" if weight > 0.6 else "black"
            axes.text(column, layer, f"{weight:.2f}", ha="center", va="center", color=color)
    axes.set_yticks(range(layers), [_layer(layer) for layer in range(layers)])
    labels = [f"{label}\nγ = {mix.gamma:.2f}" for label, mix in rows]
    axes.set_xticks(range(len(rows)), labels, rotation=30, ha="right")
    axes.set_title("Learned weights of the biLM's layers")
    figure.colorbar(image, ax=axes)
    with whole_file(path) as aside:
        figure.savefig(aside, format=path.suffix[1:], dpi=150)
