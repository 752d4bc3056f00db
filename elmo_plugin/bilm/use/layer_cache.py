"""Cache of a frozen biLM's layers, so that training runs the biLM only once on each sentence."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from elmo_plugin.bilm.files.blob_store import BlobStore
from elmo_plugin.bilm.files.digest import weights_digest
from elmo_plugin.bilm.kernels.backend import runs_as_defined
from elmo_plugin.bilm.kernels.fork_safe_lock import fork_safe_lock
from elmo_plugin.bilm.model.bilm import BiLm

# Default limits. A token of the Original biLM takes 10 kB, so CoNLL 2003's training sentences fit
# into memory.
MOST_BYTES_IN_MEMORY = 4 << 30
MOST_BYTES_ON_DISK = 32 << 30


class LayerCache:
    """
    Cache of the layers that a frozen biLM has computed, in memory or in a directory.

    The cache is exact: it stores the biLM's float32 output. The key of an entry is a cryptographic
    hash of the sentence's characters and of everything else that the output depends on: weights,
    options, `state` and `dtype`.

    A full cache keeps its entries and stores no new ones. Least-recently-used eviction would not
    help: training reads every sentence once an epoch, so each entry would be evicted before its
    next use.

    If the biLM's vectors depend on more than the key covers, such as a hook or a layer that was
    replaced, the biLM runs and nothing is stored.

    PyTorch does not count a write through an old view of a weight (`kernels/derived.py`). So the
    weights' content is compared before new layers are stored, and when the mode has changed.

    A directory is a `BlobStore`: several processes may share it, and a damaged directory does not
    stop the run. Threads may share a cache.

    `place` is `"memory"`, or a directory, which is created if needed. `most_bytes` limits the size;
    `None` is 4 GiB in memory or 32 GiB on disk.
    """

    def __init__(self, place: str, most_bytes: int | None = None) -> None:
        self._arguments = (place, most_bytes)
        in_memory = place == "memory"
        if most_bytes is None:
            most_bytes = MOST_BYTES_IN_MEMORY if in_memory else MOST_BYTES_ON_DISK
        self._store: _Memory | BlobStore = (
            _Memory(most_bytes) if in_memory else BlobStore(Path(place).expanduser(), most_bytes)
        )
        self._lock = fork_safe_lock()

    @torch.no_grad()
    def layers(self, bilm: BiLm, inputs: torch.Tensor) -> dict[str, Any]:
        """
        Return the output of `bilm(inputs)`, running the biLM only on sentences that are not stored.

        The biLM must be frozen. `inputs` are character ids, shape `(batch_size, num_tokens,
        num_characters)`. The result has `"activations"` and `"mask"` as in `BiLm.forward`.
        """
        if not runs_as_defined(bilm, BiLm):  # such as a wrapper that hands on attributes
            return bilm(inputs)
        lengths = bilm.check(inputs)
        # A replica of `DataParallel` has no parameters, so keys could not depend on its weights.
        # With a carried state, a sentence's layers depend on the batches before it.
        dtypes = {parameter.dtype for parameter in bilm.parameters()}
        if dtypes != {torch.float32} or bilm.state == "carry":
            return bilm(inputs)
        id_dtype = torch.int16 if bilm.token_class.greatest_id < 1 << 15 else torch.int32
        on_cpu = inputs.to("cpu", id_dtype).numpy()
        sentences = [ids[:length].tobytes() for ids, length in zip(on_cpu, lengths.tolist())]
        keys: list[bytes] = []
        for certain in (False, True):
            before, keys = keys, self._keys(bilm, sentences, certain)
            if not keys:
                return bilm(inputs)
            if keys != before:
                found: dict[bytes, Any] = dict(self._store.get(dict.fromkeys(keys)))
                # Missing keys, each with the index of one row of `inputs` that holds its sentence.
                missing = {key: row for row, key in enumerate(keys) if key not in found}
            if not missing:
                break
        else:
            new = _computed(bilm, inputs, lengths, missing)
            self._store.put(new)
            found.update(new)
        return _padded(bilm, [found[key] for key in keys], lengths, inputs)

    def _keys(self, bilm: BiLm, sentences: list[bytes], certain: bool = False) -> list[bytes]:
        """Return the sentences' keys; none if their layers depend on more than a key covers."""
        with self._lock:
            digest = weights_digest(bilm, certain)
        if digest is None:
            return []
        return [hashlib.blake2b(digest + one, digest_size=20).digest() for one in sentences]

    def __reduce__(self) -> Any:
        """
        Pickle only the constructor's arguments. A copy of a cache in memory starts empty; a copy of
        a cache in a directory uses the same directory.
        """
        return LayerCache, self._arguments


def check_cacheable(
    cache: str,
    state: str,
    requires_grad: bool = False,
    vocab_to_cache: Sequence[str] | None = None,
    module: torch.nn.Module | None = None,
) -> None:
    """
    Raise a `ValueError` unless these arguments of `Elmo` give a frozen biLM from files, in state
    `"reset"` or `"primed"` and without `vocab_to_cache`, as a `LayerCache` requires.
    """
    if requires_grad or vocab_to_cache or state == "carry" or module is not None:
        raise ValueError(
            f"cache {cache!r} is given with requires_grad {requires_grad}, state {state!r}, "
            f"vocab_to_cache {'given' if vocab_to_cache else None} and module "
            f"{'given' if module is not None else None}, expected a frozen biLM from files in "
            'state "reset" or "primed" without vocab_to_cache'
        )


class _Memory:
    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._held: dict[bytes, bytes] = {}
        self._lock = fork_safe_lock()

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        return {key: self._held[key] for key in keys if key in self._held}

    def put(self, values: Mapping[bytes, memoryview]) -> None:
        with self._lock:
            for key, value in values.items():
                if key not in self._held and value.nbytes <= self._left:
                    self._left -= value.nbytes
                    self._held[key] = bytes(value)


def _computed(
    bilm: BiLm, inputs: torch.Tensor, lengths: torch.Tensor, missing: dict[bytes, int]
) -> dict[bytes, memoryview]:
    """
    Run the biLM on the rows of `inputs` in `missing`, which maps cache keys to row indices. Return,
    by key, the bytes of each sentence's layers, concatenated along the last dimension.
    """
    rows = torch.tensor(list(missing.values()), device=inputs.device)
    activations = bilm(inputs[rows, : int(lengths[rows].max())])["activations"]
    # The token layer contains each vector twice, concatenated; store it once.
    activations[0] = activations[0][..., : bilm.options.projection_dim]
    layers = torch.cat(activations, dim=-1).cpu().numpy().astype("<f4", copy=False)
    return {
        key: sentence[: int(lengths[row]) + 2].reshape(-1).data.cast("B")
        for (key, row), sentence in zip(missing.items(), layers)
    }


def _padded(
    bilm: BiLm, sentences: list[Any], lengths: torch.Tensor, inputs: torch.Tensor
) -> dict[str, Any]:
    options = bilm.options
    widths = [options.projection_dim] + [options.embedding_dim] * len(bilm.lstm.layers("forward"))
    padded = numpy.zeros((len(sentences), inputs.shape[1] + 2, sum(widths)), dtype="float32")
    for row, sentence in zip(padded, sentences):
        layers = numpy.frombuffer(sentence, dtype="<f4").reshape(-1, sum(widths))
        row[: len(layers)] = layers
    tokens, *upper = torch.from_numpy(padded).to(inputs.device).split(widths, dim=-1)
    steps = torch.arange(padded.shape[1], device=inputs.device)
    mask = steps < (lengths + 2).unsqueeze(1)
    return {"activations": [torch.cat([tokens, tokens], dim=-1), *upper], "mask": mask}
