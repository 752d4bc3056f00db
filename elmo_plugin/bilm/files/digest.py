"""Hashes of everything that a biLM's vectors depend on."""

import hashlib
import json
import os
from typing import Any

import numpy
import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels.backend import BACKENDS, backend, runs_as_defined
from elmo_plugin.bilm.kernels.derived import derived, in_doubt
from elmo_plugin.bilm.manylangs.token_layer import ManyLangsTokenLayer
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.state import WARM_UP_TEXT

# Types whose `repr` shows the whole value.
SETTINGS = (bool, int, float, str, tuple, type(None), numpy.generic)


def fingerprint(bilm: BiLm) -> str:
    """
    Return a cryptographic hash of a biLM, 32 hexadecimal digits: of options, `dtype`, parameters,
    dictionaries, and attributes that were changed from the options' values.

    Output files and interrupted runs store it, so it must not change between versions of this
    package. If vectors depend on something else, such as a hook or a pruned weight's mask, each
    call returns another, random hash, so that nothing stored is taken for this biLM's.
    """
    sizes = [options_dict(bilm.options), bilm.dtype, *_assigned(bilm), *_boundaries(bilm)]
    # NumPy's numbers count as Python's.
    digest = hashlib.blake2b(json.dumps(sizes, default=float).encode(), digest_size=16)
    if not runs_as_defined(bilm, BiLm) or bilm.plain_weights is None:
        digest.update(os.urandom(16))
    # A tied weight counts at each of its places: which weights are tied changes the vectors.
    for _, tensor in bilm.named_parameters(remove_duplicate=False):
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    for module in bilm.modules():
        if isinstance(module, ManyLangsTokenLayer):
            digest.update(module.get_extra_state().numpy().data)
    return digest.hexdigest()


def weights_digest(bilm: BiLm, certain: bool = False) -> bytes | None:
    """
    Return a hash of everything that a frozen biLM's vectors depend on, 64 bytes; `None` if that is
    more than a hash can cover, such as a hook or a layer that was replaced.

    The hash is cached as `kernels/derived.py` caches values of weights. With `certain`, the content
    of all weights is compared, to find writes that PyTorch does not count.
    """
    if bilm.plain_weights is None:
        return None
    activation = bilm.char_cnn.activation.__name__
    settings = [_settings(one) for one in bilm.modules()]
    named = list(bilm.named_parameters(remove_duplicate=False))
    shapes = [(name, one.dtype, tuple(one.shape)) for name, one in named]
    about = repr((
        bilm.options, bilm.state, activation, settings, shapes, WARM_UP_TEXT,
        backend() is BACKENDS["reference"],
    ))  # fmt: skip
    parameters = [one for _, one in named]
    if certain:
        in_doubt(parameters)
    return derived(
        parameters,
        ("digest", about, str(_boundaries(bilm))),
        lambda: hashlib.blake2b(about.encode() + fingerprint(bilm).encode()).digest(),
    )


def _assigned(bilm: BiLm) -> list[tuple[str, str, Any]]:
    """Return module, name and value of each setting that differs from the options."""
    options = bilm.options
    made = {
        "cell_clip": options.cell_clip,
        "projection_clip": options.projection_clip,
        "use_skip_connections": options.use_skip_connections,
        "activation": getattr(torch, options.activation),
        "dtype": bilm.dtype,
    }
    return [
        (path, name, getattr(found, "__name__", found))
        for path, module in bilm.named_modules()
        for name, usual in made.items()
        if (found := getattr(module, name, usual)) != usual
    ]


def _boundaries(bilm: BiLm) -> list[list[int]]:
    """Return the character ids of both sentence boundaries if a program changed them, else none."""
    usual = bilm.batch_to_ids([bilm.token_class.boundaries])[0]
    found = getattr(bilm.char_cnn, "boundary_ids", usual).to(usual)  # a wrapper may have none
    return [] if torch.equal(found, usual) else found.tolist()


def _settings(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """Return a module's attributes of the types in `SETTINGS`, by name."""
    return [
        (name, value)
        for name, value in vars(module).items()
        # The place of the weights does not matter, nor does whether a module trains.
        if name not in ("training", "_weight_file")
        and isinstance(value, SETTINGS)
        and not name.startswith("_is_full")
    ]
