"""The one loader of a biLM: from names, files or URLs to a model with weights."""

from pathlib import Path

from elmo_plugin.bilm.files.names import OptionsSource, find_options, find_weights
from elmo_plugin.bilm.files.options import num_parameters
from elmo_plugin.bilm.files.weights import check_weights, fill_weights
from elmo_plugin.bilm.model.bilm import BiLm

# Above this (1 GiB, three times the Original) sizes are compared before memory is taken for a biLM.
# Not below: it takes tensors without memory, for which PyTorch loads 120 MB of modules, in 0.8 s.
MOST_UNCHECKED = 1 << 28


def load_bilm(
    options_file: OptionsSource | None = None,
    weight_file: str | Path | None = None,
    *,
    requires_grad: bool = False,
    state: str = "carry",
    dtype: str | None = None,
    default: str = "original",
    bilm_class: type[BiLm] = BiLm,
) -> BiLm:
    """
    A biLM with weights from a name, files or URLs.

    # Parameters

    options_file, weight_file, state, dtype
        As in `Elmo`. Options given as a dict need no weight file: the parameters are then the
        initial random ones, to be filled from an archive.
    requires_grad : `bool`, optional (default = `False`)
        Whether its parameters train.
    default : `str`, optional (default = `"original"`)
        The name used where neither file is given.
    bilm_class : `type[BiLm]`, optional (default = `BiLm`)
        What to make.

    # Returns

    `BiLm`

    # Raises

    `FileNotFoundError`
        If a file is not there, or cannot be fetched.
    `ValueError`
        If the files do not hold a biLM, or `dtype` is given for one that trains.
    `MemoryError`
        If memory runs out; the text names the weight file.
    """
    if dtype is not None and requires_grad:
        raise ValueError(
            f"dtype {dtype!r} is given with requires_grad, expected a biLM that does not train"
        )
    if options_file is None and weight_file is None:
        options_file = default
    options = find_options(options_file, weight_file)
    weights = find_weights(options_file, weight_file)
    if weights is not None and num_parameters(options) > MOST_UNCHECKED:
        check_weights(options, weights)
    bilm = bilm_class(options, state=state, dtype=dtype)
    if weights is not None:
        fill_weights(bilm, weights)
    return bilm.requires_grad_(requires_grad)
