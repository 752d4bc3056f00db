"""What tells one biLM's vectors from another's."""

import hashlib
import json
from typing import Any

import numpy
import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels.derived import signs as changes_seen
from elmo_plugin.bilm.manylangs.token_layer import ManyLangsTokenLayer
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.state import WARM_UP_TEXT

# How many columns a parameter's bits are summed in: a prime, so that no size of a matrix divides it
# and rows that change places do not go unseen.
NUM_COLUMNS = 1021


def fingerprint(bilm: BiLm) -> str:
    """
    Of the sizes, how products are taken, every parameter and dictionary: a cryptographic digest
    that extraction keeps in its files and its interrupted runs, so that it must stay as it is.

    # Parameters

    bilm : `BiLm`
        Any biLM.

    # Returns

    `str`
        32 hexadecimal digits.
    """
    sizes = [options_dict(bilm.options), bilm.dtype]
    digest = hashlib.blake2b(json.dumps(sizes).encode(), digest_size=16)
    for parameter in bilm.parameters():
        digest.update(numpy.ascontiguousarray(parameter.detach().cpu().numpy()).data)
    for module in bilm.modules():
        if isinstance(module, ManyLangsTokenLayer):
            digest.update(module.get_extra_state().numpy().data)
    return digest.hexdigest()


class WeightsDigest:
    """
    The fingerprint, and with it all that a frozen biLM's vectors depend on besides: `state`, the
    warm-up text, each module's `dtype`. Taking it of an Original biLM is half a second, so it is
    taken only when something has changed: what shows on the outside is looked at each time; after
    `doubt`, and where one has to be certain, so are sums of the weights' bits, which take a tenth
    of the time. Whenever it is taken, the biLM forgets what it had derived of its weights: vectors
    computed from then on are of the weights that the digest is of.
    """

    def __init__(self) -> None:
        self._known: tuple[Any, bytes, bytes] | None = None
        self._doubted = False

    def doubt(self) -> None:
        """The weights may have changed without a sign of it, by way of `.data` for one."""
        self._doubted = True

    def of(self, bilm: BiLm, certain: bool = False) -> bytes:
        """
        # Parameters

        bilm : `BiLm`
            The same one every time, or all is taken anew.
        certain : `bool`, optional (default = `False`)
            Whether changes without a sign are looked for.

        # Returns

        `bytes`
            64 of them.
        """
        dtypes = [getattr(module, "dtype", None) for module in bilm.modules()]
        shapes = [(name, one.dtype, tuple(one.shape)) for name, one in bilm.named_parameters()]
        about = repr((bilm.options, bilm.state, dtypes, shapes, WARM_UP_TEXT)).encode()
        signs = (about, changes_seen(list(bilm.parameters())))
        known = self._known
        certain = certain or self._doubted
        self._doubted = False
        if known is not None and known[0] == signs and not (certain and known[1] != _sums(bilm)):
            return known[2]
        bilm.forget_derived()
        self._known = signs, _sums(bilm), _digest(about, bilm)
        return self._known[2]


def _digest(about: bytes, bilm: BiLm) -> bytes:
    return hashlib.blake2b(about + fingerprint(bilm).encode()).digest()


def _sums(bilm: BiLm) -> bytes:
    """Not cryptographic: made to see changes that nobody made to be unseen."""
    parts = []
    for parameter in bilm.parameters():
        octets = parameter.detach().flatten().view(torch.uint8)
        if octets.storage_offset() % 8:
            octets = octets.clone()
        whole = octets.numel() // (8 * NUM_COLUMNS) * (8 * NUM_COLUMNS)
        parts.append(octets[:whole].view(torch.int64).view(-1, NUM_COLUMNS).sum(dim=0))
        parts.append(octets[whole:].long())
    # From a GPU in one transfer.
    return hashlib.blake2b(torch.cat(parts).cpu().numpy().data).digest()
