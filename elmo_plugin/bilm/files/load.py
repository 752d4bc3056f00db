"""The one loader of a biLM: from names, files or URLs to a model with weights."""

from contextlib import ExitStack
from pathlib import Path

import torch

from elmo_plugin.bilm.files.folders import is_folder, unpacked, weights_in
from elmo_plugin.bilm.files.many_langs import fill_from_pickles, is_many_langs, read_lexicon
from elmo_plugin.bilm.files.names import OptionsSource, find_options, find_weights
from elmo_plugin.bilm.files.options import num_parameters
from elmo_plugin.bilm.files.weights import check_weights, fill_weights
from elmo_plugin.bilm.manylangs.options import ManyLangsOptions
from elmo_plugin.bilm.manylangs.token_layer import ManyLangsTokenLayer
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

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
    # Parameters made in inference mode could not be changed outside of it.
    with ExitStack() as stack, torch.inference_mode(False):
        if weights is not None and is_folder(weights):
            weights = stack.enter_context(unpacked(weights))
        if isinstance(options, ManyLangsOptions):
            bilm = _many_langs(bilm_class, options, weights, state, dtype)
        else:
            bilm = _released(bilm_class, options, weights, state, dtype)
    return bilm.requires_grad_(requires_grad)


def _released(
    bilm_class: type[BiLm],
    options: ElmoOptions,
    weights: Path | None,
    state: str,
    dtype: str | None,
) -> BiLm:
    if weights is not None and weights.is_dir():
        if is_many_langs(weights):
            raise ValueError(
                f"{weights} is a folder of ELMoForManyLangs, expected a weight file, as the "
                "options are bilm-tf's; or the folder as options_file"
            )
        weights = weights_in(weights)
    if weights is not None and num_parameters(options) > MOST_UNCHECKED:
        check_weights(options, weights)
    bilm = bilm_class(options, state=state, dtype=dtype)
    if weights is not None:
        fill_weights(bilm, weights)
    return bilm


def _many_langs(
    bilm_class: type[BiLm],
    options: ManyLangsOptions,
    weights: Path | None,
    state: str,
    dtype: str | None,
) -> BiLm:
    if weights is None:
        return bilm_class(options, state, dtype, ManyLangsTokenLayer(options))
    if not (weights.is_dir() and is_many_langs(weights)):
        raise ValueError(
            f"weight_file {weights} was given for an ELMoForManyLangs model, expected its folder, "
            "as options_file alone"
        )
    layer = ManyLangsTokenLayer(options, read_lexicon(weights, options))
    bilm = bilm_class(options, state, dtype, layer)
    fill_from_pickles(bilm, weights)
    return bilm
