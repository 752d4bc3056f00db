"""The layers of sentences that a frozen biLM has seen, so that it reads each once in a training."""

import hashlib
import logging
import os
import struct
import threading
from pathlib import Path
from typing import Any, Optional, Union

import numpy
import torch

from elmo_plugin.bilm.files.digest import WeightsDigest
from elmo_plugin.bilm.model.bilm import BiLm

logger = logging.getLogger(__name__)

# A cache in memory or on disk takes no more unless told otherwise. A token of the Original biLM is
# 10 kB: in memory, the training sentences of CoNLL 2003 fit.
MOST_BYTES_IN_MEMORY = 4 << 30
MOST_BYTES_ON_DISK = 32 << 30
# Other processes may write to the same directory: how many files to write before looking again.
FILES_BETWEEN_COUNTS = 1000

_HEADER = struct.Struct("<8sII16s")  # magic, rows, columns, digest of what follows
_MAGIC = b"elmolay1"


class LayerCache:
    """
    Exact: what is stored is what the biLM gave, in float32, found by a cryptographic digest of the
    sentence's characters and of everything that its vectors depend on (weights, options, `state`,
    `dtype`). What is full takes nothing more in and gives what it has: sentences come back once an
    epoch, where throwing out the least recently used would throw out every one before its turn.

    In a directory every sentence is a file, moved into place when whole, with a checksum: several
    processes may share it, and a damaged file is noticed, removed and made again.

    # Parameters

    place : `str`
        `"memory"`, or a directory, made if there is none.
    most_bytes : `Optional[int]`, optional (default = `None`)
        What it may take; `None` for 4 GiB in memory, 32 GiB on disk.
    """

    def __init__(self, place: str, most_bytes: Optional[int] = None) -> None:
        self._arguments = (place, most_bytes)
        self._store: Union[_Memory, _Directory] = (
            _Memory(most_bytes or MOST_BYTES_IN_MEMORY)
            if place == "memory"
            else _Directory(Path(place), most_bytes or MOST_BYTES_ON_DISK)
        )
        self.weights = WeightsDigest()

    @torch.no_grad()
    def layers(self, bilm: BiLm, inputs: torch.Tensor) -> dict[str, Any]:
        """
        What `bilm(inputs)` gives; it runs only on sentences that are not here.

        # Parameters

        bilm : `BiLm`
            Frozen, in `"reset"` or `"primed"`.
        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`.

        # Returns

        `dict[str, Any]`
            See `BiLm.forward`.
        """
        bilm.check(inputs)
        if bilm.char_cnn.char_embedding.dtype != torch.float32:
            return bilm(inputs)
        prefix = self.weights.of(bilm)
        lengths = (inputs > 0).any(dim=-1).sum(dim=1)
        on_cpu = inputs.to("cpu", torch.int16).numpy()
        keys = [
            hashlib.blake2b(prefix + ids[:length].tobytes(), digest_size=20).hexdigest()
            for ids, length in zip(on_cpu, lengths.tolist())
        ]
        found = {key: self._store.get(key) for key in dict.fromkeys(keys)}
        # One row for each sentence that is not here.
        missing = {key: row for row, key in enumerate(keys) if found[key] is None}
        if missing:
            rows = torch.tensor(list(missing.values()), device=inputs.device)
            longest = int(lengths[rows].max())
            activations = bilm(inputs[rows, :longest])["activations"]
            # The token layer holds its vectors twice.
            activations[0] = activations[0][..., : bilm.options.projection_dim]
            stored = torch.cat(activations, dim=-1).cpu()
            for (key, row), sentence in zip(missing.items(), stored):
                layers = sentence[: int(lengths[row]) + 2]
                self._store.put(key, layers)
                found[key] = layers
        return self._padded(bilm, [found[key] for key in keys], lengths, inputs)

    def _padded(
        self, bilm: BiLm, sentences: list[Any], lengths: torch.Tensor, inputs: torch.Tensor
    ) -> dict[str, Any]:
        projection_dim, embedding_dim = bilm.options.projection_dim, bilm.options.embedding_dim
        width = projection_dim + bilm.options.num_layers * embedding_dim
        padded = torch.zeros(len(sentences), inputs.shape[1] + 2, width)
        for row, sentence in zip(padded, sentences):
            row[: len(sentence)] = sentence
        padded = padded.to(inputs.device)
        tokens, *upper = padded.split(
            [projection_dim] + [embedding_dim] * bilm.options.num_layers, dim=-1
        )
        steps = torch.arange(padded.shape[1], device=inputs.device)
        mask = steps < (lengths + 2).unsqueeze(1)
        return {"activations": [torch.cat([tokens, tokens], dim=-1), *upper], "mask": mask}

    def __reduce__(self) -> Any:
        """A copy starts with what the directory holds."""
        return LayerCache, self._arguments


class _Memory:
    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._held: dict[str, torch.Tensor] = {}

    def get(self, key: str) -> Optional[torch.Tensor]:
        return self._held.get(key)

    def put(self, key: str, sentence: torch.Tensor) -> None:
        size = sentence.numel() * sentence.element_size()
        if key not in self._held and size <= self._left:
            self._left -= size
            self._held[key] = sentence.contiguous().clone()


class _Directory:
    def __init__(self, root: Path, most_bytes: int) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._most_bytes = most_bytes
        self._full = False
        self._until_count = 0
        self._used = 0

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / key[2:]

    def get(self, key: str) -> Optional[torch.Tensor]:
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) >= _HEADER.size:
            magic, rows, columns, digest = _HEADER.unpack_from(content)
            payload = memoryview(content)[_HEADER.size :]
            if (
                magic == _MAGIC
                and len(payload) == 4 * rows * columns
                and digest == _sum(key, payload)
            ):
                array = numpy.frombuffer(payload, dtype="<f4").reshape(rows, columns)
                return torch.from_numpy(array.copy())
        logger.warning("%s is damaged; it is removed and made again", path)
        path.unlink(missing_ok=True)
        return None

    def put(self, key: str, sentence: torch.Tensor) -> None:
        if self._full:
            return
        payload = numpy.ascontiguousarray(sentence.numpy(), dtype="<f4").data.cast("B")
        if self._until_count == 0:
            self._used = _bytes_in(self._root)
            self._until_count = FILES_BETWEEN_COUNTS
        self._until_count -= 1
        self._used += _HEADER.size + len(payload)
        if self._used > self._most_bytes:
            self._stop(f"holds the {self._most_bytes} bytes it may")
            return
        path = self._path(key)
        # A name of this process and thread alone; not `whole_file`, which waits for the disk: a
        # file that a crash cut short is noticed by its checksum.
        aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(exist_ok=True)
            with aside.open("wb") as file:
                file.write(_HEADER.pack(_MAGIC, *sentence.shape, _sum(key, payload)))
                file.write(payload)
            aside.replace(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            self._stop(f"cannot be written to ({error})")

    def _stop(self, reason: str) -> None:
        self._full = True
        logger.warning("the cache %s %s; further sentences are not kept", self._root, reason)


def _sum(key: str, payload: Any) -> bytes:
    return hashlib.blake2b(payload, digest_size=16, key=key.encode()).digest()


def _bytes_in(root: Path) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118
            except FileNotFoundError:
                continue
    return total
