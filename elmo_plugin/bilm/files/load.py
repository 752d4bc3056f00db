"""Load a biLM by name, or from files or URLs."""

import logging
from contextlib import ExitStack
from pathlib import Path

import torch

from elmo_plugin.bilm.files.folders import is_folder, unpacked, weights_in
from elmo_plugin.bilm.files.many_langs import is_many_langs, read_lexicon, read_pickles
from elmo_plugin.bilm.files.names import OptionsSource, find_options, find_weights
from elmo_plugin.bilm.files.options import num_parameters, options_dict
from elmo_plugin.bilm.files.weights import check_weights, read_weights
from elmo_plugin.bilm.kernels.fork_safe_lock import fork_safe_lock
from elmo_plugin.bilm.kernels.tuning import LEAST_HALVED
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.manylangs.token_layer import ManyLangsTokenLayer
from elmo_plugin.bilm.model.bilm import BiLm

logger = logging.getLogger(__name__)

# Number of parameters (1 GiB in float32) above which the weight file is checked before memory is
# allocated. The check uses meta tensors, for which PyTorch imports many modules, so small biLMs
# skip it.
MOST_UNCHECKED = 1 << 28
# A fork waits for it: a child would find PyTorch's random generator locked by another thread.
_loading = fork_safe_lock()


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
    Load a biLM with its weights.

    # Parameters

    options_file, weight_file, state, dtype
        See `Elmo`. A dict of options needs no weight file: parameters are then random until a
        `state_dict` is loaded. `dtype` `"float16"` has no effect on the CPU if all weights are
        small, as in the embedded biLM; a warning says so.
    requires_grad : `bool`, optional (default = `False`)
        Train the parameters.
    default : `str`, optional (default = `"original"`)
        Name of the biLM to load if neither file is given.
    bilm_class : `type[BiLm]`, optional (default = `BiLm`)
        Class of the result.

    # Raises

    `FileNotFoundError`
        If a file is missing or cannot be downloaded.
    `ValueError`
        If the files do not hold a biLM, or `dtype` is given with `requires_grad`.
    `MemoryError`
        If memory runs out; the message names the weight file.
    """
    if dtype is not None and requires_grad:
        raise ValueError(
            f"dtype {dtype!r} is given with requires_grad, expected a biLM that does not train"
        )
    if options_file is None and weight_file is None:
        options_file = default
    options = find_options(options_file, weight_file)
    weights = found = find_weights(options_file, weight_file)
    # Parameters that are created in inference mode cannot be changed outside inference mode.
    with ExitStack() as stack, torch.inference_mode(False), _loading:
        if weights is not None and is_folder(weights):
            weights = stack.enter_context(unpacked(weights))
        is_theirs = weights is not None and weights.is_dir() and is_many_langs(weights)
        if isinstance(options, ManyLangsOptions):
            if weights is not None and not is_theirs:
                raise ValueError(
                    f"weight_file {weights} was given for an ELMoForManyLangs model, expected its "
                    "folder, as options_file alone"
                )
            lexicon = None if weights is None else read_lexicon(weights, options)
            bilm = bilm_class(options, state, dtype, ManyLangsTokenLayer(options, lexicon))
        else:
            if is_theirs:
                raise ValueError(
                    f"{weights} is a folder of ELMoForManyLangs, expected a weight file, as the "
                    "options are bilm-tf's; or the folder as options_file"
                )
            if weights is not None and weights.is_dir():
                weights = weights_in(weights)
            if weights is not None and num_parameters(options) > MOST_UNCHECKED:
                check_weights(options, weights)
            bilm = bilm_class(options, state, dtype)
        if weights is not None:
            read = read_pickles if isinstance(options, ManyLangsOptions) else read_weights
            with torch.no_grad():
                for parameter, values in read(bilm, weights):
                    parameter.copy_(values)
    bilm.char_cnn.remember_files(options_dict(options), None if found is None else str(found))
    halved = [*bilm.lstm.parameters(), *(one.weight for one in bilm.char_cnn.highway_layers)]
    if dtype == "float16" and all(one.numel() < LEAST_HALVED for one in halved):
        logger.warning(
            "dtype 'float16' has no effect on the CPU for this biLM: it computes in float32, since "
            "its weights are too small for float16 to be faster; 'bfloat16' and 'int8' have one"
        )
    if weights is not None and bilm.device.type != "meta":
        # Transformers initializes the modules of a user's PreTrainedModel that lack this flag.
        for module in bilm.modules():
            module._is_hf_initialized = True  # type: ignore[assignment]
    return bilm.requires_grad_(requires_grad)
