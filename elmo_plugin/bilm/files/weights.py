"""
Read and write a biLM's parameters in the released format, `weights.hdf5`, of bilm-tf's
`dump_weights` (https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/training.py). Only this module
converts between TensorFlow's names, shapes and gate order and those of this package.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy
import torch

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.plain_hdf5 import plain_hdf5
from elmo_plugin.bilm.files.plain_tensors import converted, whole_file
from elmo_plugin.bilm.files.safetensors_file import read_safetensors
from elmo_plugin.bilm.kernels.backend import plain
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

# TensorFlow's LSTMCell stores its gates as i, j (candidate), f, o, and adds 1 to f when it runs.
# Our cell stores them as i, f, j, o, and the 1 is part of its bias.
TENSORFLOW_FORGET_BIAS = 1.0
# HDF5 attribute with a checksum of all datasets; HDF5 itself has none for contiguous datasets.
CHECKSUM = "elmo_plugin_crc32"
STORED_TYPES = ("float16", "float32", "float64")


class Entry(NamedTuple):
    """
    One dataset of a weight file: its name, and the parameters in it, as views that have the
    dataset's axes and stand one below the other.

    With `has_gates`, the last axis has the gates of an LSTM. With `is_negated`, the file has the
    opposite sign, and with `offset` numbers that are less by this.
    """

    key: str
    views: Sequence[torch.Tensor]
    has_gates: bool = False
    is_negated: bool = False
    offset: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dataset."""
        return (sum(map(len, self.views)), *self.views[0].shape[1:])

    def split(self, array: numpy.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield each view with its numbers in the dataset, which keep their values."""
        values = _swap_gates(torch.from_numpy(array)) if self.has_gates else torch.from_numpy(array)
        for view, part in zip(self.views, values.split([len(view) for view in self.views])):
            # PyTorch copies quickly into rows that are in order, as those of parameters are.
            yield (view.t(), part.t()) if view.ndim == 2 else (view, part)

    def array(self) -> numpy.ndarray:
        """Return the dataset's numbers, in float32 or float64."""
        values = torch.cat([view.detach().cpu() for view in self.views])
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        values = -values if self.is_negated else values
        values = values if self.offset is None else values - self.offset
        return (_swap_gates(values) if self.has_gates else values).numpy()


def load_weights(bilm: BiLm, path: str | Path) -> None:
    """
    Load a biLM's parameters from a weight file.

    The whole file is read and checked before the first parameter changes. This needs memory for a
    second copy of the weights.

    # Parameters

    bilm : `BiLm`
        A biLM made from the options that belong to the file.
    path : `str | Path`
        An HDF5 file with weights in float16, float32 or float64, or a `.safetensors` file of
        `elmo_plugin.transformers`.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If the file is damaged or refers to other files; if a key is missing, has another shape, or
        holds NaN, infinity or a number that the parameter's type cannot hold. The message names
        file, key, and the values found and expected.
    `MemoryError`
        If memory runs out. The biLM is unchanged after any of these errors.
    """
    with torch.no_grad():
        for target, new in list(read_weights(bilm, path)):
            target.copy_(new)


def read_weights(bilm: BiLm, path: str | Path) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """
    Yield each parameter, or a slice of one, with its values from a weight file. Raise the errors of
    `load_weights`; a wrong checksum is found only at the end.
    """
    if Path(path).suffix == ".safetensors":
        yield from read_safetensors(bilm, path)
        return
    with whole_file(path, "weight file", "HDF5 file"):
        for entry, array in read_arrays(bilm, path):
            for view, values in entry.split(array):
                values = -values if entry.is_negated else values
                values = values if entry.offset is None else values + entry.offset
                yield view, converted(values, view.dtype, entry.key, path)


def read_arrays(
    bilm: BiLm, path: str | Path, kind: str = "weight file", more: Sequence[str] = ()
) -> Iterator[tuple[Entry, numpy.ndarray]]:
    """
    Yield each dataset of a biLM's HDF5 file, and without views those of the keys `more` that are
    there, with its array in float32 or float64. A wrong checksum is found at the end.
    """
    checksum = 0
    with plain_hdf5(path, kind) as file:
        others = [Entry(key, ()) for key in more if key in file]
        for entry in (*_checked(file, bilm, str(path)), *others):
            dataset = file[entry.key]
            float_type = numpy.promote_types(dataset.dtype, numpy.float32)
            array = dataset[...].astype(float_type, copy=False)
            checksum = _checksum_of(entry.key, array, checksum)
            yield entry, array
        written = dataset.file.attrs.get(CHECKSUM, checksum)
        if written != checksum:
            raise ValueError(
                f"{path} is damaged: its numbers have the checksum {checksum:08x}, expected "
                f"{int(written):08x}"
            )


def check_weights(options: ElmoOptions, path: str | Path) -> None:
    """Raise the errors of `load_weights` for wrong keys and shapes, before memory is allocated."""
    if Path(path).suffix == ".safetensors":
        return  # its own reader checks before it reads
    with torch.device("meta"):
        bilm = BiLm(options)
    with plain_hdf5(path, "weight file") as file:
        _checked(file, bilm, str(path))


def save_weights(bilm: BiLm, path: str | Path, dtype: str = "float32") -> None:
    """
    Write a biLM's parameters in the released format, atomically.

    The file's attribute `elmo_plugin_crc32` is a checksum of its numbers.

    # Parameters

    bilm : `BiLm`
        Any biLM but an ELMoForManyLangs model.
    path : `str | Path`
        The HDF5 file to write.
    dtype : `str`, optional (default = `"float32"`)
        Type of the stored matrices: `"float16"`, `"float32"` or `"float64"`. Biases are stored in
        float32 at least: AllenNLP adds the forget bias of 1 in the file's type, and float16 would
        round the sum.

    # Raises

    `ValueError`
        If `dtype` is unknown, a layer was replaced or hooked, or the biLM is an ELMoForManyLangs
        model. `path` is then unchanged.
    """
    if dtype not in STORED_TYPES:
        raise ValueError(f"dtype is {dtype!r}, expected one of {STORED_TYPES}")
    plain(bilm.plain_weights)
    compression = {"compression": "gzip", "shuffle": True} if dtype == "float16" else {}

    def arrays() -> Iterator[tuple[str, numpy.ndarray]]:
        for entry in layout(bilm):
            stored = numpy.promote_types(dtype, "float32") if len(entry.shape) == 1 else dtype
            yield entry.key, entry.array().astype(stored)

    with atomic_write(path) as temporary:
        write_arrays(temporary, arrays(), **compression)


def write_arrays(path: Path, arrays: Iterable[tuple[str, numpy.ndarray]], **how: Any) -> None:
    """Write named arrays to an HDF5 file, with their checksum; `how` is for `create_dataset`."""
    checksum = 0
    with h5py.File(path, "w") as file:
        for key, array in arrays:
            file.create_dataset(key, data=array, **how)
            checksum = _checksum_of(key, array, checksum)
        file.attrs[CHECKSUM] = checksum


def _checked(file: dict[str, h5py.Dataset], bilm: BiLm, path: str) -> list[Entry]:
    """Check keys, shapes and types of a weight file against a biLM; return the entries to read."""
    entries = list(layout(bilm))
    for entry in entries:
        if entry.key not in file:
            raise ValueError(
                f"{path}: the key {entry.key} is missing, expected shape {entry.shape}"
            )
        dataset = file[entry.key]
        if dataset.shape != entry.shape:
            raise ValueError(
                f"{path}: {entry.key} has shape {dataset.shape}, the options require "
                f"{entry.shape}; expected the weight file that belongs to these options"
            )
        if dataset.dtype.kind != "f" or dataset.dtype.itemsize > 8:
            raise ValueError(
                f"{path}: {entry.key} has type {dataset.dtype}, expected floating point, float16 "
                "to float64"
            )
    # Without this check, upper layers that the options do not mention would be ignored silently.
    unused = sorted(
        key
        for key in file.keys() - {entry.key for entry in entries}
        if key.split("/")[0].startswith(("CNN", "RNN", "char_"))
    )
    if unused:
        raise ValueError(
            f"{path}: the options have no place for {', '.join(unused)[:500]}; expected options of "
            f"the same biLM (they say {bilm.options.num_layers} layers, "
            f"{bilm.options.num_highways} highways, {len(bilm.options.filters)} filters)"
        )
    return entries


def _checksum_of(key: str, array: numpy.ndarray, before: int) -> int:
    """
    Update the CRC-32 `before` with the name and the numbers of a dataset. float16 and float32
    arrays of equal numbers have the same checksum.
    """
    wide = array.astype(numpy.promote_types(array.dtype, "float32").newbyteorder("<"), copy=False)
    numbers = numpy.ascontiguousarray(wide).data.cast("B")
    return zlib.crc32(numbers, zlib.crc32(key.encode(), before))


def layout(bilm: BiLm) -> Iterator[Entry]:
    """
    Yield an `Entry` for every dataset of a biLM's weight file, in order. Raise a `ValueError` for
    an ELMoForManyLangs model, which has no such file.
    """
    if isinstance(bilm.options, ManyLangsOptions):
        raise ValueError("an ELMoForManyLangs model fits no weight file, expected bilm-tf's kind")
    char_cnn = bilm.char_cnn
    # Row 0, zeros for the padding token, is not in the file.
    yield Entry("char_embed", [char_cnn.char_embedding[1:]])
    for index, convolution in enumerate(char_cnn.convolutions):
        yield Entry(f"CNN/W_cnn_{index}", [convolution.weight.permute(2, 1, 0).unsqueeze(0)])
        assert convolution.bias is not None
        yield Entry(f"CNN/b_cnn_{index}", [convolution.bias])
    for index, highway in enumerate(char_cnn.highway_layers):
        weights, biases = highway.weight.t().chunk(2, dim=1), highway.bias.chunk(2)
        # bilm-tf's gate "carry" is 1 minus our gate, so its weights have the opposite sign.
        for part, name in enumerate(("transform", "carry")):
            is_negated = name == "carry"
            yield Entry(f"CNN_high_{index}/W_{name}", [weights[part]], is_negated=is_negated)
            yield Entry(f"CNN_high_{index}/b_{name}", [biases[part]], is_negated=is_negated)
    if char_cnn.projection is not None:
        yield Entry("CNN_proj/W_proj", [char_cnn.projection.weight.t()])
        yield Entry("CNN_proj/b_proj", [char_cnn.projection.bias])
    for number, direction in enumerate(("forward", "backward")):
        for layer, cell in enumerate(bilm.lstm.layers(direction)):
            prefix = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            kernels = [cell.input_linearity.weight.t(), cell.state_linearity.weight.t()]
            bias = cell.state_linearity.bias
            forget_bias = torch.zeros(4, len(bias) // 4, device="cpu")  # whatever the default is
            forget_bias[1] = TENSORFLOW_FORGET_BIAS
            yield Entry(f"{prefix}/W_0", kernels, has_gates=True)
            yield Entry(f"{prefix}/B", [bias], has_gates=True, offset=forget_bias.flatten())
            yield Entry(f"{prefix}/W_P_0", [cell.state_projection.weight.t()])


def _swap_gates(values: torch.Tensor) -> torch.Tensor:
    """Convert between the gate orders i, j, f, o and i, f, j, o along the last axis."""
    return torch.cat([values.chunk(4, dim=-1)[gate] for gate in (0, 2, 1, 3)], dim=-1)
