"""Restore the optimizer state of a converted bilm-tf checkpoint: Adagrad's accumulators."""

from collections.abc import Iterable
from pathlib import Path

import torch

from elmo_plugin.bilm.files.bilm_tf import ADAGRAD_FILE, OPTIONS_FILE, SOFTMAX_KEYS
from elmo_plugin.bilm.files.options import read_options
from elmo_plugin.bilm.files.weights import read_arrays
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

# Initial value of bilm-tf's accumulators.
INITIAL_ACCUMULATOR = 1.0
# Prefix of parameter names in checkpoints: the attribute that held the model in version 0.2.
PREFIX = "language_model."


def read_accumulators(options: ElmoOptions, path: str | Path) -> dict[str, torch.Tensor]:
    """
    Read Adagrad's sums of squared gradients from an `adagrad.hdf5`, with the names and shapes of a
    `LanguageModel`'s parameters. Raise the errors of `load_weights`.
    """
    shadow = BiLm(options)
    softmax: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for parameter in shadow.parameters():
            parameter.fill_(INITIAL_ACCUMULATOR)
        kind = "file of Adagrad's accumulators"
        for entry, array in read_arrays(shadow, path, kind, SOFTMAX_KEYS):
            if entry.views:
                for view, values in entry.split(array):
                    view.copy_(values)
            else:
                softmax[entry.key] = torch.from_numpy(array)
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

    `parameters` are those of a whole `LanguageModel`, `directory` has the files of `elmo-plugin
    convert-checkpoint`. Raise a `FileNotFoundError` if a file is missing, and a `ValueError` if the
    optimizer is not Adagrad or the accumulators do not fit.
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
