"""
`weights.hdf5`, the released layout, to a biLM's parameters and back.

The only knower of TensorFlow's names, shapes and gate order. Nothing in a file is executed: HDF5
only. Layout: bilm-tf's `dump_weights`
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/training.py).
"""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy
import torch

from elmo_plugin.bilm.files.plain_hdf5 import plain_hdf5
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.manylangs.options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection
from elmo_plugin.bilm.model.options import ElmoOptions

# TensorFlow's LSTMCell keeps its gates as i, j (candidate), f, o, and adds 1 to f when it runs;
# here they are i, f, j, o and the 1 is part of the bias.
TENSORFLOW_FORGET_BIAS = 1.0
# In the files that `save_weights` writes; HDF5 has no checksum of plain datasets.
CHECKSUM = "elmo_plugin_crc32"
STORED_TYPES = ("float16", "float32", "float64")

# Parts of parameters, and what belongs there.
Values = list[tuple[torch.Tensor, numpy.ndarray]]
Convert = Callable[[numpy.ndarray], numpy.ndarray]


class Entry(NamedTuple):
    """One dataset of the file: its key and shape, and how it meets the parameters."""

    key: str
    shape: tuple[int, ...]
    put: Callable[[numpy.ndarray], Values]
    get: Callable[[], numpy.ndarray]


def load_weights(bilm: BiLm, path: str | Path) -> None:
    """
    Fills a biLM's parameters from a weight file. All of it is read and checked before the first
    parameter changes, which takes memory for a second copy of them meanwhile.

    # Parameters

    bilm : `BiLm`
        Built from the options that belong to the file.
    path : `str | Path`
        An HDF5 file, float16 to float64.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is not a whole HDF5 file, or refers to other files; if a key is missing, has another
        shape or holds a value that is not a finite number of the parameter's type; or if the values
        are others than `save_weights` wrote. The text names file, key, found and wanted.
    `MemoryError`
        If memory runs out. The biLM is unchanged, whatever is raised.
    """
    with torch.no_grad():
        for target, new in list(_checked_values(bilm, path)):
            target.copy_(new)


@torch.no_grad()
def fill_weights(bilm: BiLm, path: str | Path) -> None:
    """
    `load_weights` for a biLM that is thrown away if this fails, when some of its parameters may
    have changed: tensor by tensor, without a second copy.
    """
    for target, new in _checked_values(bilm, path):
        target.copy_(new)


def _checked_values(bilm: BiLm, path: str | Path) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each parameter and its new values; raises at the end if the checksum is another."""
    checksum = 0
    with plain_hdf5(path, "weight file") as file:
        for entry in _checked(file, bilm, str(path)):
            array = _read(file[entry.key])
            checksum = checksum_of(entry.key, array, checksum)
            for target, values in entry.put(array):
                new = torch.from_numpy(values).to(target.dtype)
                if not torch.isfinite(new).all():
                    raise ValueError(
                        f"{path}: {entry.key} holds NaN or infinity, or more than {target.dtype} "
                        "can hold, expected finite numbers"
                    )
                yield target, new
        written = file["char_embed"].file.attrs.get(CHECKSUM, checksum)
        if written != checksum:
            raise ValueError(
                f"{path} is damaged: its numbers have the checksum {checksum:08x}, those that were "
                f"written had {int(written):08x}"
            )


def check_weights(options: ElmoOptions, path: str | Path) -> None:
    """
    Whether a weight file belongs to options, by its keys and shapes; before memory is taken for a
    biLM of these sizes.

    # Parameters

    options : `ElmoOptions`
        The sizes.
    path : `str | Path`
        An HDF5 file.

    # Raises

    `FileNotFoundError`, `ValueError`
        As `load_weights`.
    """
    with torch.device("meta"):
        bilm = BiLm(options)
    with plain_hdf5(path, "weight file") as file:
        _checked(file, bilm, str(path))


def save_weights(bilm: BiLm, path: str | Path, dtype: str = "float32") -> None:
    """
    Writes a biLM's parameters in the released layout, and a checksum as the attribute
    `elmo_plugin_crc32`; an existing file is replaced only when the new one is whole.

    # Parameters

    bilm : `BiLm`
        Any biLM but one of ELMoForManyLangs.
    path : `str | Path`
        The HDF5 file to write.
    dtype : `str`, optional (default = `"float32"`)
        How matrices are stored, one of `STORED_TYPES`. Biases take at least float32: AllenNLP adds
        the forget bias of 1 in the type of the file, and would round.

    # Raises

    `ValueError`
        If the biLM or `dtype` is another; `path` is as it was then.
    """
    if dtype not in STORED_TYPES:
        raise ValueError(f"dtype is {dtype!r}, expected one of {STORED_TYPES}")
    checksum = 0
    with whole_file(path) as aside, h5py.File(aside, "w") as file:
        for entry in layout(bilm):
            compression = {"compression": "gzip", "shuffle": True} if dtype == "float16" else {}
            stored = numpy.promote_types(dtype, "float32") if len(entry.shape) == 1 else dtype
            array = entry.get().astype(stored)
            file.create_dataset(entry.key, data=array, **compression)
            checksum = checksum_of(entry.key, array, checksum)
        file.attrs[CHECKSUM] = checksum


def _checked(file: dict[str, h5py.Dataset], bilm: BiLm, path: str) -> list[Entry]:
    """What is to be read, when all of it is there in the right shape and nothing is left over."""
    entries = list(layout(bilm))
    for entry in entries:
        if entry.key not in file:
            raise ValueError(
                f"{path}: the key {entry.key} is missing, expected shape {entry.shape}"
            )
        dataset = file[entry.key]
        if dataset.shape != entry.shape:
            raise ValueError(
                f"{path}: {entry.key} has shape {dataset.shape}, the options want {entry.shape}"
            )
        if dataset.dtype.kind != "f" or dataset.dtype.itemsize > 8:
            raise ValueError(
                f"{path}: {entry.key} has type {dataset.dtype}, expected floating point, float16 "
                "to float64"
            )
    # A deeper biLM than the options say would load without its upper layers.
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


def _read(dataset: h5py.Dataset) -> numpy.ndarray:
    return dataset[...].astype(numpy.promote_types(dataset.dtype, numpy.float32), copy=False)


def checksum_of(key: str, array: numpy.ndarray, before: int) -> int:
    """Of the numbers, however they are stored."""
    wide = array.astype(numpy.promote_types(array.dtype, "float32").newbyteorder("<"), copy=False)
    numbers = numpy.ascontiguousarray(wide).data.cast("B")
    return zlib.crc32(numbers, zlib.crc32(key.encode(), before))


def layout(bilm: BiLm) -> Iterator[Entry]:
    """Every dataset of a biLM's file, in its order."""
    if isinstance(bilm.options, ManyLangsOptions):
        raise ValueError("an ELMoForManyLangs model fits no weight file, expected bilm-tf's kind")
    char_cnn = bilm.char_cnn
    # The padding token's row of zeros is ours alone.
    yield _plain("char_embed", char_cnn.char_embedding[1:])
    for index, convolution in enumerate(char_cnn.convolutions):
        number, dim, width = convolution.weight.shape
        yield Entry(
            f"CNN/W_cnn_{index}",
            (1, width, dim, number),
            _putter(convolution.weight, lambda array: array[0].transpose(2, 1, 0)),
            _getter(convolution.weight, lambda array: array.transpose(2, 1, 0)[None]),
        )
        assert convolution.bias is not None
        yield _plain(f"CNN/b_cnn_{index}", convolution.bias)
    for index, highway in enumerate(char_cnn.highway_layers):
        dim = highway.in_features
        # Our gate keeps the input, TensorFlow's "carry" lets the transform in: the signs differ.
        for rows, name, sign in (
            (slice(0, dim), "transform", 1.0),
            (slice(dim, 2 * dim), "carry", -1.0),
        ):
            yield _matrix(f"CNN_high_{index}/W_{name}", highway.weight[rows], sign)
            yield _plain(f"CNN_high_{index}/b_{name}", highway.bias[rows], sign=sign)
    if char_cnn.projection is not None:
        yield _matrix("CNN_proj/W_proj", char_cnn.projection.weight)
        yield _plain("CNN_proj/b_proj", char_cnn.projection.bias)
    for number, direction in enumerate(("forward", "backward")):
        for layer, cell in enumerate(bilm.lstm.layers(direction)):
            yield from _cell_entries(f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", cell)


def _cell_entries(prefix: str, cell: LstmCellWithProjection) -> Iterator[Entry]:
    inputs, states = cell.input_linearity.weight, cell.state_linearity.weight
    bias = cell.state_linearity.bias
    input_dim = inputs.shape[1]
    forget_bias = numpy.zeros(4 * cell.cell_size, dtype=numpy.float32)
    forget_bias[cell.cell_size : 2 * cell.cell_size] = TENSORFLOW_FORGET_BIAS

    def put_kernel(array: numpy.ndarray) -> Values:
        kernel = _swap_gates(array.T)
        return [(inputs, kernel[:, :input_dim]), (states, kernel[:, input_dim:])]

    def get_kernel() -> numpy.ndarray:
        return _swap_gates(_array(torch.cat([inputs, states], dim=1))).T

    shape = (input_dim + cell.projection_dim, 4 * cell.cell_size)
    yield Entry(f"{prefix}/W_0", shape, put_kernel, get_kernel)
    yield Entry(
        f"{prefix}/B",
        (4 * cell.cell_size,),
        _putter(bias, lambda array: _swap_gates(array) + forget_bias),
        _getter(bias, lambda array: _swap_gates(array - forget_bias)),
    )
    yield _matrix(f"{prefix}/W_P_0", cell.state_projection.weight)


def _swap_gates(array: numpy.ndarray) -> numpy.ndarray:
    """i, j, f, o <-> i, f, j, o along the first axis."""
    first, second, third, fourth = numpy.split(array, 4, axis=0)
    return numpy.concatenate([first, third, second, fourth], axis=0)


def _plain(key: str, parameter: torch.Tensor, sign: float = 1.0) -> Entry:
    """Stored as it is."""
    shape = tuple(parameter.shape)
    return _entry(key, shape, parameter, lambda array: sign * array)


def _matrix(key: str, parameter: torch.Tensor, sign: float = 1.0) -> Entry:
    """Stored transposed: TensorFlow multiplies from the other side."""
    shape = tuple(reversed(parameter.shape))
    return _entry(key, shape, parameter, lambda array: sign * array.T)


def _entry(key: str, shape: tuple[int, ...], parameter: torch.Tensor, convert: Convert) -> Entry:
    return Entry(key, shape, _putter(parameter, convert), _getter(parameter, convert))


def _putter(parameter: torch.Tensor, convert: Convert) -> Callable[[numpy.ndarray], Values]:
    return lambda array: [(parameter, convert(array))]


def _getter(parameter: torch.Tensor, convert: Convert) -> Callable[[], numpy.ndarray]:
    return lambda: convert(_array(parameter))


def _array(tensor: torch.Tensor) -> numpy.ndarray:
    """NumPy has no bfloat16."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
