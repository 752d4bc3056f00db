"""Adagrad's accumulators from a checkpoint of bilm-tf, to our parameters and an optimizer."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

from elmo_plugin.bilm.files.bilm_tf import ADAGRAD_FILE, OPTIONS_FILE, SOFTMAX_KEYS
from elmo_plugin.bilm.files.options import read_options
from elmo_plugin.bilm.files.plain_hdf5 import plain_hdf5
from elmo_plugin.bilm.files.weights import CHECKSUM, checksum_of, layout
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

# bilm-tf's Adagrad starts at it.
INITIAL_ACCUMULATOR = 1.0
# How a `LanguageModel` in an AllenNLP model is called.
PREFIX = "language_model."


class Accumulators(NamedTuple):
    """
    Adagrad's sums of squared gradients. `bilm`: by the names of a `BiLm`'s parameters.
    `softmax_weight`, `softmax_bias`: shapes `(num_words, projection_dim)` and `(num_words, 1)`.
    """

    bilm: dict[str, torch.Tensor]
    softmax_weight: torch.Tensor | None
    softmax_bias: torch.Tensor | None


def read_accumulators(options: ElmoOptions, path: str | Path) -> Accumulators:
    """
    What `BilmTfCheckpoint.write` put into `adagrad.hdf5`, in the shapes and order of our
    parameters.

    # Parameters

    options : `ElmoOptions`
        Of the biLM.
    path : `str | Path`
        The file.

    # Returns

    `Accumulators`

    # Raises

    `FileNotFoundError`, `ValueError`
        If it is not there, damaged, or of a biLM with other options.
    """
    shadow = BiLm(options)
    checksum = 0
    softmax: dict[str, torch.Tensor] = {}
    with plain_hdf5(path, "file of Adagrad's accumulators") as file, torch.no_grad():
        for parameter in shadow.parameters():
            parameter.fill_(INITIAL_ACCUMULATOR)
        for entry in layout(shadow):
            found = file[entry.key].shape if entry.key in file else None
            if found != entry.shape:
                raise ValueError(
                    f"{path}: {entry.key} has shape {found}, expected {entry.shape}: the "
                    "accumulators of a biLM with these options"
                )
            array = file[entry.key][...]
            checksum = checksum_of(entry.key, array, checksum)
            # What the layout adds (a forget bias) and turns (a sign) is of weights alone.
            zeros = entry.put(numpy.zeros(array.shape))
            for (target, values), (_, nothing) in zip(entry.put(array.astype("float64")), zeros):
                target.copy_(torch.from_numpy(numpy.abs(values - nothing)))
        for key in SOFTMAX_KEYS:
            if key in file:
                array = file[key][...]
                checksum = checksum_of(key, array, checksum)
                softmax[key] = torch.from_numpy(array)
        if file["char_embed"].file.attrs.get(CHECKSUM, checksum) != checksum:
            raise ValueError(f"{path} is damaged: its numbers have another checksum")
    weight, bias = (softmax.get(key) for key in SOFTMAX_KEYS)
    return Accumulators(
        {name: one.detach() for name, one in shadow.named_parameters()},
        weight,
        None if bias is None else bias.unsqueeze(-1),
    )


def restore_adagrad(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[tuple[str, torch.nn.Parameter]],
    directory: str | Path,
) -> None:
    """
    Puts a checkpoint's accumulators into an Adagrad that has made no step.

    # Parameters

    optimizer : `torch.optim.Optimizer`
        A `torch.optim.Adagrad` over the parameters.
    parameters : `Iterable[tuple[str, torch.nn.Parameter]]`
        Those of a `LanguageModel`, by name; all of them.
    directory : `str | Path`
        What `elmo-plugin convert-checkpoint` wrote.

    # Raises

    `ValueError`, `FileNotFoundError`
        If it is another optimizer; if the directory holds no accumulators, or those of a biLM or a
        softmax of other sizes.
    """
    if not isinstance(optimizer, torch.optim.Adagrad):
        kind = type(optimizer).__name__
        raise ValueError(f"{directory} has accumulators of Adagrad, expected it and not {kind}")
    path = Path(directory) / ADAGRAD_FILE
    found = read_accumulators(read_options(Path(directory) / OPTIONS_FILE), path)
    sums = {f"bilm.{name}": values for name, values in found.bilm.items()}
    if found.softmax_weight is not None and found.softmax_bias is not None:
        sums |= {"softmax.weight": found.softmax_weight, "softmax.bias": found.softmax_bias}
    for name, parameter in parameters:
        values = sums.get(name.removeprefix(PREFIX))
        if values is None or values.shape != parameter.shape:
            shape = None if values is None else tuple(values.shape)
            raise ValueError(
                f"{path}: the accumulator of {name} has shape {shape}, expected "
                f"{tuple(parameter.shape)}"
            )
        optimizer.state[parameter]["sum"].copy_(values)
