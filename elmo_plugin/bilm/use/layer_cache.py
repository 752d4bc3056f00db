"""The layers of sentences that a frozen biLM has seen, so that it reads each once in a training."""

import hashlib
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

from elmo_plugin.bilm.files.blob_store import BlobStore
from elmo_plugin.bilm.files.digest import WeightsDigest
from elmo_plugin.bilm.model.bilm import BiLm

# A cache in memory or on disk takes no more unless told otherwise. A token of the Original biLM is
# 10 kB: in memory, the training sentences of CoNLL 2003 fit.
MOST_BYTES_IN_MEMORY = 4 << 30
MOST_BYTES_ON_DISK = 32 << 30


class LayerCache:
    """
    Exact: what is stored is what the biLM gave, in float32, found by a cryptographic digest of the
    sentence's characters and of everything that its vectors depend on (weights, options, `state`,
    `dtype`). What is full takes nothing more in and gives what it has: sentences come back once an
    epoch, where throwing out the least recently used would throw out every one before its turn.

    Weights that changed without a sign, by way of `.data` for one, are found before anything is
    computed to be kept: what is stored is always of the weights in its name. Sentences that are
    here come from here until the next `train`, `eval` or `weights.doubt()`.

    A directory is a `BlobStore`: several processes may share it, and whatever is wrong with it, the
    run goes on. Several threads may use one cache.

    # Parameters

    place : `str`
        `"memory"`, or a directory, made if there is none.
    most_bytes : `int | None`, optional (default = `None`)
        What it may take; `None` for 4 GiB in memory, 32 GiB on disk.
    """

    def __init__(self, place: str, most_bytes: int | None = None) -> None:
        self._arguments = (place, most_bytes)
        in_memory = place == "memory"
        if most_bytes is None:
            most_bytes = MOST_BYTES_IN_MEMORY if in_memory else MOST_BYTES_ON_DISK
        self._store: _Memory | BlobStore = (
            _Memory(most_bytes) if in_memory else BlobStore(Path(place).expanduser(), most_bytes)
        )
        self._lock = threading.Lock()
        self.weights = WeightsDigest()

    @torch.no_grad()
    def layers(self, bilm: BiLm, inputs: torch.Tensor) -> dict[str, Any]:
        """
        What `bilm(inputs)` gives; it runs only on sentences that are not here, and on all in
        `"carry"`.

        # Parameters

        bilm : `BiLm`
            Frozen.
        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`.

        # Returns

        `dict[str, Any]`
            See `BiLm.forward`.
        """
        bilm.check(inputs)
        others = any(parameter.dtype != torch.float32 for parameter in bilm.parameters())
        # Of a carried state a sentence's layers are never the same again.
        if others or bilm.state == "carry":
            return bilm(inputs)
        lengths = (inputs > 0).any(dim=-1).sum(dim=1)
        whole = torch.int16 if bilm.char_cnn.greatest_id < 1 << 15 else torch.int32
        on_cpu = inputs.to("cpu", whole).numpy()
        sentences = [ids[:length].tobytes() for ids, length in zip(on_cpu, lengths.tolist())]
        keys = self._keys(bilm, sentences)
        found: dict[bytes, Any] = dict(self._store.get(dict.fromkeys(keys)))
        if any(key not in found for key in keys):
            certain = self._keys(bilm, sentences, certain=True)
            if certain != keys:
                keys, found = certain, dict(self._store.get(dict.fromkeys(certain)))
            # One row for each sentence that is not here.
            missing = {key: row for row, key in enumerate(keys) if key not in found}
            if missing:
                new = _computed(bilm, inputs, lengths, missing)
                self._store.put(new)
                found.update(new)
        return _padded(bilm, [found[key] for key in keys], lengths, inputs)

    def _keys(self, bilm: BiLm, sentences: list[bytes], certain: bool = False) -> list[bytes]:
        with self._lock:
            digest = self.weights.of(bilm, certain)
        return [hashlib.blake2b(digest + one, digest_size=20).digest() for one in sentences]

    def __reduce__(self) -> Any:
        """A copy starts with what the directory holds."""
        return LayerCache, self._arguments


class _Memory:
    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._held: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

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
    """For each missing sentence, by its row, all layers side by side, token after token."""
    rows = torch.tensor(list(missing.values()), device=inputs.device)
    activations = bilm(inputs[rows, : int(lengths[rows].max())])["activations"]
    # The token layer holds its vectors twice.
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
    widths = [options.projection_dim] + [options.embedding_dim] * options.num_layers
    padded = numpy.zeros((len(sentences), inputs.shape[1] + 2, sum(widths)), dtype="float32")
    for row, sentence in zip(padded, sentences):
        layers = numpy.frombuffer(sentence, dtype="<f4").reshape(-1, sum(widths))
        row[: len(layers)] = layers
    tokens, *upper = torch.from_numpy(padded).to(inputs.device).split(widths, dim=-1)
    steps = torch.arange(padded.shape[1], device=inputs.device)
    mask = steps < (lengths + 2).unsqueeze(1)
    return {"activations": [torch.cat([tokens, tokens], dim=-1), *upper], "mask": mask}
