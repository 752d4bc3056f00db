"""
Read and write a biLM's parameters in the released format, `weights.hdf5`.

The format is that of bilm-tf's `dump_weights`
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/training.py). Only this module converts
between TensorFlow's names, shapes and gate order and those of this package.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection
from elmo_plugin.bilm.model.options import ElmoOptions

# TensorFlow's LSTMCell stores its gates as i, j (candidate), f, o, and adds 1 to f when it runs.
# Our cell stores them as i, f, j, o, and the 1 is part of its bias.
TENSORFLOW_FORGET_BIAS = 1.0
# HDF5 attribute with a checksum of all datasets; HDF5 itself has none for contiguous datasets.
CHECKSUM = "elmo_plugin_crc32"
STORED_TYPES = ("float16", "float32", "float64")

# Pairs of a parameter, or a slice of one, and the new values.
Values = list[tuple[torch.Tensor, numpy.ndarray]]
Put = Callable[[numpy.ndarray], Values]


class Entry(NamedTuple):
    """
    One dataset of a weight file: its name and shape, a function that converts its array to
    parameters' values, and one that returns the array to write.
    """

    key: str
    shape: tuple[int, ...]
    put: Put
    get: Callable[[], numpy.ndarray]


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
    Yield each parameter, or a slice of one, with its values from a weight file.

    Raise the errors of `load_weights`; a wrong checksum is found only at the end.
    """
    if Path(path).suffix == ".safetensors":
        yield from read_safetensors(bilm, path)
        return
    with whole_file(path, "weight file", "HDF5 file"):
        for key, array, put in read_arrays(bilm, path):
            assert put is not None
            for target, values in put(array):
                yield target, converted(torch.from_numpy(values), target.dtype, key, path)


def read_arrays(
    bilm: BiLm, path: str | Path, kind: str = "weight file", more: Sequence[str] = ()
) -> Iterator[tuple[str, numpy.ndarray, Put | None]]:
    """
    Yield key, array (float32 or float64) and `Entry.put` of each dataset in a biLM's HDF5 file, and
    without `put` those of the keys `more` that are there; a wrong checksum is found at the end.
    """
    checksum = 0
    with plain_hdf5(path, kind) as file:
        puts: dict[str, Put | None] = {one.key: one.put for one in _checked(file, bilm, str(path))}
        for key, put in (puts | {key: None for key in more if key in file}).items():
            float_type = numpy.promote_types(file[key].dtype, numpy.float32)
            array = file[key][...].astype(float_type, copy=False)
            checksum = checksum_of(key, array, checksum)
            yield key, array, put
        written = file["char_embed"].file.attrs.get(CHECKSUM, checksum)
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
    checksum = 0
    with atomic_write(path) as temporary, h5py.File(temporary, "w") as file:
        for entry in layout(bilm):
            compression = {"compression": "gzip", "shuffle": True} if dtype == "float16" else {}
            stored = numpy.promote_types(dtype, "float32") if len(entry.shape) == 1 else dtype
            array = entry.get().astype(stored)
            file.create_dataset(entry.key, data=array, **compression)
            checksum = checksum_of(entry.key, array, checksum)
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


def checksum_of(key: str, array: numpy.ndarray, before: int) -> int:
    """
    Update a CRC-32 with the name and the numbers of a dataset.

    float16 and float32 arrays of equal numbers have the same checksum. `before` is the checksum of
    the datasets before this one.
    """
    wide = array.astype(numpy.promote_types(array.dtype, "float32").newbyteorder("<"), copy=False)
    numbers = numpy.ascontiguousarray(wide).data.cast("B")
    return zlib.crc32(numbers, zlib.crc32(key.encode(), before))


def layout(bilm: BiLm) -> Iterator[Entry]:
    """
    Yield an `Entry` for every dataset of a biLM's weight file, in order.

    Raise a `ValueError` for an ELMoForManyLangs model, which has no such file.
    """
    if isinstance(bilm.options, ManyLangsOptions):
        raise ValueError("an ELMoForManyLangs model fits no weight file, expected bilm-tf's kind")
    char_cnn = bilm.char_cnn
    # Row 0, zeros for the padding token, is not in the file.
    characters = char_cnn.char_embedding[1:]
    yield _entry("char_embed", characters, lambda array: array, shape=characters.shape)
    for index, convolution in enumerate(char_cnn.convolutions):
        yield _entry(
            f"CNN/W_cnn_{index}",
            convolution.weight,
            lambda array: array[0].T,
            lambda array: array.T[None],
            shape=(1, *convolution.weight.shape[::-1]),
        )
        assert convolution.bias is not None
        yield _entry(f"CNN/b_cnn_{index}", convolution.bias)
    for index, highway in enumerate(char_cnn.highway_layers):
        dim = highway.in_features
        # bilm-tf's gate "carry" is 1 minus our gate, so its weights have the opposite sign.
        for rows, name, put in (
            (slice(0, dim), "transform", numpy.transpose),
            (slice(dim, 2 * dim), "carry", lambda array: -array.T),
        ):
            yield _entry(f"CNN_high_{index}/W_{name}", highway.weight[rows], put)
            yield _entry(f"CNN_high_{index}/b_{name}", highway.bias[rows], put)
    if char_cnn.projection is not None:
        yield _entry("CNN_proj/W_proj", char_cnn.projection.weight)
        yield _entry("CNN_proj/b_proj", char_cnn.projection.bias)
    for number, direction in enumerate(("forward", "backward")):
        for layer, cell in enumerate(bilm.lstm.layers(direction)):
            yield from _cell_entries(f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", cell)


def _cell_entries(prefix: str, cell: LstmCellWithProjection) -> Iterator[Entry]:
    inputs, states = cell.input_linearity.weight, cell.state_linearity.weight
    bias = cell.state_linearity.bias
    input_dim, cell_size = inputs.shape[1], len(bias) // 4
    forget_bias = numpy.zeros(4 * cell_size, dtype=numpy.float32)
    forget_bias[cell_size : 2 * cell_size] = TENSORFLOW_FORGET_BIAS

    def put_kernel(array: numpy.ndarray) -> Values:
        kernel = _swap_gates(array.T)
        return [(inputs, kernel[:, :input_dim]), (states, kernel[:, input_dim:])]

    def get_kernel() -> numpy.ndarray:
        return _swap_gates(_array(torch.cat([inputs, states], dim=1))).T

    shape = (input_dim + states.shape[1], len(bias))
    yield Entry(f"{prefix}/W_0", shape, put_kernel, get_kernel)
    yield _entry(
        f"{prefix}/B",
        bias,
        lambda array: _swap_gates(array) + forget_bias,
        lambda array: _swap_gates(array - forget_bias),
    )
    yield _entry(f"{prefix}/W_P_0", cell.state_projection.weight)


def _swap_gates(array: numpy.ndarray) -> numpy.ndarray:
    """Convert between the gate orders i, j, f, o and i, f, j, o along the first axis."""
    first, second, third, fourth = numpy.split(array, 4, axis=0)
    return numpy.concatenate([first, third, second, fourth], axis=0)


def _entry(
    key: str,
    parameter: torch.Tensor,
    put: Callable[[numpy.ndarray], numpy.ndarray] = numpy.transpose,
    get: Callable[[numpy.ndarray], numpy.ndarray] | None = None,
    shape: Sequence[int] | None = None,
) -> Entry:
    """
    Return the `Entry` of one parameter. `put` converts the file's array to the parameter's values,
    and `get` converts back; by default, both reverse the order of the axes.
    """
    return Entry(
        key,
        tuple(parameter.shape[::-1] if shape is None else shape),
        lambda array: [(parameter, put(array))],
        lambda: (get or put)(_array(parameter)),
    )


def _array(tensor: torch.Tensor) -> numpy.ndarray:
    """Convert a tensor to NumPy; bfloat16, which NumPy lacks, becomes float32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
