"""Hashes of everything that a biLM's vectors depend on."""

import hashlib
import json
import os
from typing import Any

import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels.backend import depends_on_parameters_alone
from elmo_plugin.bilm.kernels.derived import version_counters
from elmo_plugin.bilm.manylangs.token_layer import ManyLangsTokenLayer
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.state import WARM_UP_TEXT

# Number of columns in which a parameter's 8-byte words are summed for a checksum. The number is
# prime, so that swapping two rows of the parameter changes the sums.
NUM_COLUMNS = 1021


def fingerprint(bilm: BiLm) -> str:
    """
    Return a cryptographic hash of a biLM, 32 hexadecimal digits.

    The hash covers options, `dtype`, parameters, buffers (the masks of pruned weights) and
    ELMoForManyLangs' dictionaries, and settings that were assigned. Output files and interrupted
    runs store the hash, so it must not change between versions. If the vectors depend on more
    (`is_covered`), every hash is another.
    """
    sizes = [options_dict(bilm.options), bilm.dtype]
    digest = hashlib.blake2b(json.dumps(sizes).encode(), digest_size=16)
    options = bilm.options
    made = {
        "dtype": bilm.dtype,
        "cell_clip": options.cell_clip,
        "projection_clip": options.projection_clip,
        "use_skip_connections": options.use_skip_connections,
        "activation": options.activation,
    }
    if assigned := [one for one in _settings(bilm) if one[2] != made[one[1]]]:
        digest.update(repr(assigned).encode())
    if not is_covered(bilm):
        digest.update(os.urandom(16))
    for tensor in _tensors(bilm):
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    for module in bilm.modules():
        if isinstance(module, ManyLangsTokenLayer):
            digest.update(module.get_extra_state().numpy().data)
    return digest.hexdigest()


def is_covered(bilm: BiLm) -> bool:
    """
    Return whether `fingerprint` sees all that the vectors depend on: no layer was replaced, hooked
    or parametrized. Vectors of another biLM must not be stored for later use.
    """
    known = getattr(bilm.char_cnn, "activation", None) in (torch.relu, torch.tanh)
    return known and depends_on_parameters_alone(bilm, or_buffers=True)


class WeightsDigest:
    """
    Cached hash of everything that a frozen biLM's vectors depend on.

    The hash covers the biLM's `fingerprint`, `state` and settings, and `WARM_UP_TEXT`, which sets
    the state of a primed biLM. Hashing all weights is slow, so they are hashed only after a change.
    PyTorch's version counters reveal most changes; `recheck` and `certain=True` also compare
    checksums of the weights. After a change, the biLM discards everything derived from its weights.
    """

    def __init__(self) -> None:
        self._known: tuple[Any, bytes, bytes] | None = None
        self._recheck = False

    def recheck(self) -> None:
        """
        Make the next call of `of` compare checksums, because writes through `.data` change no
        version counter.
        """
        self._recheck = True

    def of(self, bilm: BiLm, certain: bool = False) -> bytes:
        """
        Return the hash of a biLM, 64 bytes.

        # Parameters

        bilm : `BiLm`
            The biLM to hash. Only the last hash is cached, so pass the same biLM in every call.
        certain : `bool`, optional (default = `False`)
            Compare checksums, to find changes that PyTorch's version counters do not reveal.
        """
        tensors = dict([*bilm.named_parameters(), *bilm.named_buffers()])
        shapes = [(name, one.dtype, tuple(one.shape)) for name, one in tensors.items()]
        about = repr((bilm.options, bilm.state, _settings(bilm), shapes, WARM_UP_TEXT)).encode()
        counters = (about, version_counters(list(tensors.values())))
        known = self._known
        certain = certain or self._recheck
        if known is None or known[0] != counters or (certain and known[1] != _sums(bilm)):
            bilm.forget_derived()
            digest = hashlib.blake2b(about + fingerprint(bilm).encode()).digest()
            known = self._known = counters, _sums(bilm), digest
        self._recheck = False  # last: an interrupted comparison is made again
        return known[2]


def _settings(bilm: BiLm) -> list[tuple[str, str, Any]]:
    """Return `(module, setting, value)` of all settings that can be assigned."""
    return [
        (path, name, getattr(getattr(module, name), "__name__", getattr(module, name)))
        for path, module in bilm.named_modules()
        for name in ("dtype", "cell_clip", "projection_clip", "use_skip_connections", "activation")
        if hasattr(module, name)
    ]


def _tensors(bilm: BiLm) -> list[torch.Tensor]:
    return [*bilm.parameters(), *bilm.buffers()]


def _sums(bilm: BiLm) -> bytes:
    """Return a checksum of the weights that detects accidental changes, but not tampering."""
    parts = []
    for tensor in _tensors(bilm):
        octets = tensor.detach().flatten().view(torch.uint8)
        if octets.storage_offset() % 8:
            octets = octets.clone()
        whole = octets.numel() // (8 * NUM_COLUMNS) * (8 * NUM_COLUMNS)
        parts.append(octets[:whole].view(torch.int64).view(-1, NUM_COLUMNS).sum(dim=0))
        parts.append(octets[whole:].long())
    # Concatenate, so that a single copy from the GPU is enough.
    return hashlib.blake2b(torch.cat(parts).cpu().numpy().data).digest()
