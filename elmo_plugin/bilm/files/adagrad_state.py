"""Restore the optimizer state of a converted bilm-tf checkpoint: Adagrad's accumulators."""

from collections.abc import Iterable
from pathlib import Path

import numpy
import torch

from elmo_plugin.bilm.files.bilm_tf import ADAGRAD_FILE, OPTIONS_FILE, SOFTMAX_KEYS
from elmo_plugin.bilm.files.options import read_options
from elmo_plugin.bilm.files.plain_hdf5 import plain_hdf5
from elmo_plugin.bilm.files.weights import CHECKSUM, checksum_of, layout
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

# Initial value of bilm-tf's accumulators.
INITIAL_ACCUMULATOR = 1.0
# Prefix of parameter names in checkpoints: the attribute that held the model in version 0.2.
PREFIX = "language_model."


def read_accumulators(options: ElmoOptions, path: str | Path) -> dict[str, torch.Tensor]:
    """
    Read Adagrad's sums of squared gradients from an `adagrad.hdf5`.

    The result is a dict with the names and shapes of a `LanguageModel`'s parameters. Raise a
    `FileNotFoundError` if the file is missing, and a `ValueError` if it is damaged or does not fit
    the biLM's `options`.
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
            # `put` converts weights: it adds a forget bias and changes signs. Undo both.
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
    sums = {f"bilm.{name}": one.detach() for name, one in shadow.named_parameters()}
    if len(softmax) == len(SOFTMAX_KEYS):
        weight, bias = (softmax[key] for key in SOFTMAX_KEYS)
        sums |= {"softmax.weight": weight, "softmax.bias": bias.unsqueeze(-1)}
    return sums


def restore_adagrad(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[tuple[str, torch.nn.Parameter]],
    directory: str | Path,
) -> None:
    """
    Fill a new `torch.optim.Adagrad` with the accumulators of a converted bilm-tf checkpoint.

    `parameters` are the pairs of name and parameter of a whole `LanguageModel`. `directory` is the
    output folder of `elmo-plugin convert-checkpoint`. Raise a `FileNotFoundError` if a file is
    missing. Raise a `ValueError` if the optimizer is not Adagrad, or the accumulators do not fit
    the parameters.
    """
    if not isinstance(optimizer, torch.optim.Adagrad):
        kind = type(optimizer).__name__
        raise ValueError(f"{directory} has accumulators of Adagrad, expected it and not {kind}")
    path = Path(directory) / ADAGRAD_FILE
    sums = read_accumulators(read_options(Path(directory) / OPTIONS_FILE), path)
    for name, parameter in parameters:
        values = sums.get(name.removeprefix(PREFIX))
        if values is None or values.shape != parameter.shape:
            shape = None if values is None else tuple(values.shape)
            raise ValueError(
                f"{path}: the accumulator of {name} has shape {shape}, expected "
                f"{tuple(parameter.shape)}"
            )
        optimizer.state[parameter]["sum"].copy_(values)
