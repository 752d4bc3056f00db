"""Weights that trained models have learned for the biLM's layers (Peters et al. 2018, figure 2)."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmo_plugin.bilm.files.archive_member import read_member
from elmo_plugin.pages.html_page import END, Markup, layer_name, start, table

MIX = re.compile(r"(?P<mix>.*)\.scalar_parameters\.(?P<layer>\d+)")
WEIGHTS = "weights.th"


class LearnedMix(NamedTuple):
    """
    Scalar mix of a biLM's layers, with the weights that a trained model has learned.

    `name`: short name of the mix in its model, such as `input` or `elmo 1`. `weights`: weights
    after the softmax, token layer first. `gamma`: factor by which the weighted sum is multiplied.
    """

    name: str
    weights: list[float]
    gamma: float


def learned_mixes(path: str) -> list[LearnedMix]:
    """
    Read the scalar mixes of a biLM's layers from a trained model, in the order of its parameters.

    `path` is an archive, a serialization folder or a weight file; no code in it is executed. Raise
    a `FileNotFoundError` if there is no such file, and a `ValueError` if it contains no mix, or
    cannot be read safely.
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
    Return the scalar mixes among a model's parameters; an empty list for a model without ELMo.

    Raise a `ValueError` if a layer weight or gamma does not have shape `(1,)`.
    """
    mixes: dict[str, dict[int, torch.Tensor]] = {}
    for key, value in parameters.items():
        found = MIX.fullmatch(str(key))
        if found and (scale := f"{found['mix']}.gamma") in parameters:
            for name in (key, scale):
                shape = tuple(getattr(parameters[name], "shape", ()))
                if shape != (1,):
                    raise ValueError(f"{name} has the shape {shape}, expected (1,)")
            mixes.setdefault(found["mix"], {})[int(found["layer"])] = value
    result = []
    for name, by_layer in mixes.items():
        before = torch.cat([by_layer[layer].float() for layer in sorted(by_layer)])
        gamma = float(parameters[f"{name}.gamma"])
        result.append(LearnedMix(_short(name), torch.softmax(before, dim=0).tolist(), gamma))
    return result


def parameters_in(path: Path) -> dict[str, Any]:
    """
    Read a model's parameters, by name, from an archive, a serialization folder or a weight file. No
    code in the file is executed. Raise a `FileNotFoundError` if there is no such file, and a
    `ValueError` if it cannot be read safely.
    """
    if path.is_dir():
        files = [path / "model.tar.gz", path / "best.th"]
        found = [file for file in files if file.is_file()]
        if not found:
            raise ValueError(
                f"{path} holds neither {files[0].name} nor {files[1].name}, expected a folder of "
                "`allennlp train -s`"
            )
        path = found[0]
    content: Any = path
    if path.name.endswith(".gz"):
        weights = read_member(path, WEIGHTS)
        if weights is None:
            raise ValueError(f"{path} has no {WEIGHTS} in it, expected an archive")
        content = io.BytesIO(weights)
    try:
        parameters = torch.load(content, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} holds no weights that can be read safely ({type(error).__name__}), expected "
            "a model.tar.gz or best.th of `allennlp train`"
        ) from error
    if not isinstance(parameters, dict):
        raise ValueError(f"{path} holds a {type(parameters).__name__}, expected parameters by name")
    return parameters


def _short(name: str) -> str:
    """
    Shorten the module name of a mix for a table.

    `text_field_embedder.token_embedder_elmo._elmo.scalar_mix_0` becomes `input`, and
    `_elmo.scalar_mix_1` becomes `elmo 1`. In a model with ELMo at input and output, mix 0 is at the
    input and mix 1 at the output.
    """
    if name.startswith("text_field_embedder."):
        return "input"
    return name.lstrip("_").replace(".scalar_mix_", " ")


def weights_page(rows: list[tuple[str, LearnedMix]]) -> str:
    """Return an HTML page with a heat map of mix weights, one row for each pair `(label, mix)`."""
    num_layers = max(len(mix.weights) for _, mix in rows)
    cells = []
    for label, mix in rows:
        weights = [_cell(weight) for weight in mix.weights]
        weights += [""] * (num_layers - len(weights))
        cells.append([label, *weights, Markup(f'<td class="number">{mix.gamma:.3f}</td>')])
    header = ["", *map(layer_name, range(num_layers)), "γ"]
    return start("Learned weights of the biLM's layers") + table(header, cells) + END


def _cell(weight: float) -> str:
    strong = " strong" if weight > 0.6 else ""
    share = f"--share: {100 * weight:.1f}%"
    return Markup(f'<td class="number weight{strong}" style="{share}">{weight:.3f}</td>')
