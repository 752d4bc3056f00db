"""What tells one frozen biLM's vectors from another's."""

import hashlib
from typing import Any, Optional

import torch

from elmo_plugin.bilm.kernels.derived import signs as changes_seen
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.state import WARM_UP_TEXT

# How many columns a parameter's bits are summed in: a prime, so that no size of a matrix divides it
# and rows that change places do not go unseen.
NUM_COLUMNS = 1021


class WeightsDigest:
    """
    A cryptographic digest of all that a biLM's vectors depend on: weights, options, `state`,
    `dtype`. Taking it of an Original biLM is half a second, so it is taken only when something has
    changed: what shows on the outside is looked at each time; after `doubt`, so are sums of the
    weights' bits, which take a tenth of the time.
    """

    def __init__(self) -> None:
        self._known: Optional[tuple[Any, bytes, bytes]] = None
        self._doubted = False

    def doubt(self) -> None:
        """The weights may have changed without a sign of it, by way of `.data` for one."""
        self._doubted = True

    def of(self, bilm: BiLm) -> bytes:
        """
        # Parameters

        bilm : `BiLm`
            The same one every time, or all is taken anew.

        # Returns

        `bytes`
            64 of them.
        """
        dtypes = [getattr(module, "dtype", None) for module in bilm.modules()]
        about = repr((bilm.options, bilm.state, dtypes, WARM_UP_TEXT)).encode()
        signs = (about, changes_seen(list(bilm.parameters())))
        known = self._known
        if known is not None and known[0] == signs:
            certain = not self._doubted or known[1] == _sums(bilm)
            self._doubted = False
            if certain:
                return known[2]
        digest = hashlib.blake2b(about)
        for name, parameter in bilm.named_parameters():
            digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
            values = parameter.detach().cpu().contiguous()
            digest.update(values.flatten().view(torch.uint8).numpy().data)
        self._known = signs, _sums(bilm), digest.digest()
        self._doubted = False
        return self._known[2]


def _sums(bilm: BiLm) -> bytes:
    """Not cryptographic: made to see changes that nobody made to be unseen."""
    digest = hashlib.blake2b()
    for parameter in bilm.parameters():
        octets = parameter.detach().flatten().view(torch.uint8)
        if octets.storage_offset() % 8:
            octets = octets.clone()
        whole = octets.numel() // (8 * NUM_COLUMNS) * (8 * NUM_COLUMNS)
        sums = octets[:whole].view(torch.int64).view(-1, NUM_COLUMNS).sum(dim=0)
        for part in (sums, octets[whole:]):
            digest.update(part.cpu().numpy().data)
    return digest.digest()
