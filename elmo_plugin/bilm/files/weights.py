"""
`weights.hdf5`, the released layout, to a biLM's parameters and back.

The only knower of TensorFlow's names, shapes and gate order. Nothing in a file is executed: HDF5
only. Layout: bilm-tf's `dump_weights`
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/training.py).
"""

from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Union

import h5py
import numpy
import torch

from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import NUM_CHARACTER_EMBEDDINGS
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection

# TensorFlow's LSTMCell keeps its gates as i, j (candidate), f, o, and adds 1 to f when it runs;
# here they are i, f, j, o and the 1 is part of the bias.
TENSORFLOW_FORGET_BIAS = 1.0


class _Entry(NamedTuple):
    """One dataset of the file: its key and shape, and how it meets the parameters."""

    key: str
    shape: tuple[int, ...]
    put: Callable[[numpy.ndarray], None]
    get: Callable[[], numpy.ndarray]


def load_weights(bilm: BiLm, path: Union[str, Path]) -> None:
    """
    Fills a biLM's parameters from a weight file.

    # Parameters

    bilm : `BiLm`
        Built from the options that belong to the file.
    path : `Union[str, Path]`
        An HDF5 file, float16 to float64.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is not a whole HDF5 file, or a key is missing, has another shape or holds a value that
        is not a number; the text names file, key, shape found and shape wanted. The biLM is then
        unchanged.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no weight file {path}")
    entries = list(_entries(bilm))
    try:
        with h5py.File(path, "r") as file:
            # All is read, and only then read again and put: one array is held at a time.
            for entry in entries:
                _read(file, entry, str(path))
            _check_nothing_left(file, bilm, entries, str(path))
            with torch.no_grad():
                for entry in entries:
                    entry.put(_read(file, entry, str(path)))
    except OSError as error:
        raise ValueError(
            f"{path} is not a whole HDF5 file, expected a biLM's weights: {error}"
        ) from error


def save_weights(bilm: BiLm, path: Union[str, Path], dtype: str = "float32") -> None:
    """
    Writes a biLM's parameters in the released layout; an existing file is replaced only when the
    new one is whole.

    # Parameters

    bilm : `BiLm`
        Any biLM.
    path : `Union[str, Path]`
        The HDF5 file to write.
    dtype : `str`, optional (default = `"float32"`)
        How matrices are stored; bilm-tf and AllenNLP read any float type. Biases take at least
        float32: AllenNLP adds the forget bias of 1 in the type of the file, and would round.
    """
    with whole_file(path) as aside, h5py.File(aside, "w") as file:
        for entry in _entries(bilm):
            compression = {"compression": "gzip", "shuffle": True} if dtype == "float16" else {}
            stored = numpy.promote_types(dtype, "float32") if len(entry.shape) == 1 else dtype
            file.create_dataset(entry.key, data=entry.get().astype(stored), **compression)


def _read(file: h5py.File, entry: _Entry, path: str) -> numpy.ndarray:
    dataset = file.get(entry.key)
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(f"{path}: the key {entry.key} is missing, expected shape {entry.shape}")
    if tuple(dataset.shape) != entry.shape:
        raise ValueError(
            f"{path}: {entry.key} has shape {tuple(dataset.shape)}, the options want {entry.shape}"
        )
    if dataset.dtype.kind != "f":
        raise ValueError(f"{path}: {entry.key} has type {dataset.dtype}, expected floating point")
    array = dataset[...].astype(numpy.promote_types(dataset.dtype, numpy.float32), copy=False)
    if not numpy.isfinite(array).all():
        raise ValueError(f"{path}: {entry.key} holds NaN or infinity, expected finite numbers")
    return array


def _check_nothing_left(file: h5py.File, bilm: BiLm, entries: list[_Entry], path: str) -> None:
    """A deeper biLM than the options say would load without its upper layers: refuse it."""
    known = {entry.key for entry in entries}
    left: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and name not in known:
            left.append(name)

    file.visititems(visit)
    unused = sorted(name for name in left if name.split("/")[0].startswith(("CNN", "RNN", "char_")))
    if unused:
        raise ValueError(
            f"{path}: the options have no place for {', '.join(unused)}; expected options of "
            f"the same biLM (they say {bilm.options.num_layers} layers, "
            f"{bilm.options.num_highways} highways, {len(bilm.options.filters)} filters)"
        )


def _entries(bilm: BiLm) -> Iterator[_Entry]:
    char_cnn = bilm.char_cnn
    table = char_cnn.char_embedding
    # The padding token's row of zeros is ours alone.
    yield _plain("char_embed", table[1:], (NUM_CHARACTER_EMBEDDINGS, table.shape[1]))
    for index, convolution in enumerate(char_cnn.convolutions):
        number, dim, width = convolution.weight.shape
        yield _Entry(
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


def _cell_entries(prefix: str, cell: LstmCellWithProjection) -> Iterator[_Entry]:
    inputs, states = cell.input_linearity.weight, cell.state_linearity.weight
    bias = cell.state_linearity.bias
    input_dim = inputs.shape[1]
    forget_bias = numpy.zeros(4 * cell.cell_size, dtype=numpy.float32)
    forget_bias[cell.cell_size : 2 * cell.cell_size] = TENSORFLOW_FORGET_BIAS

    def put_kernel(array: numpy.ndarray) -> None:
        kernel = torch.from_numpy(_swap_gates(array.T))
        inputs.copy_(kernel[:, :input_dim])
        states.copy_(kernel[:, input_dim:])

    def get_kernel() -> numpy.ndarray:
        return _swap_gates(torch.cat([inputs, states], dim=1).detach().cpu().numpy()).T

    yield _Entry(
        f"{prefix}/W_0",
        (input_dim + cell.projection_dim, 4 * cell.cell_size),
        put_kernel,
        get_kernel,
    )
    yield _Entry(
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


def _plain(
    key: str, parameter: torch.Tensor, shape: tuple[int, ...] = (), sign: float = 1.0
) -> _Entry:
    """Stored as it is."""
    return _Entry(
        key,
        shape or tuple(parameter.shape),
        _putter(parameter, lambda array: sign * array),
        _getter(parameter, lambda array: sign * array),
    )


def _matrix(key: str, parameter: torch.Tensor, sign: float = 1.0) -> _Entry:
    """Stored transposed: TensorFlow multiplies from the other side."""
    return _Entry(
        key,
        tuple(reversed(parameter.shape)),
        _putter(parameter, lambda array: sign * array.T),
        _getter(parameter, lambda array: sign * array.T),
    )


def _putter(
    parameter: torch.Tensor, convert: Callable[[numpy.ndarray], numpy.ndarray]
) -> Callable[[numpy.ndarray], None]:
    def put(array: numpy.ndarray) -> None:
        parameter.copy_(torch.from_numpy(numpy.ascontiguousarray(convert(array))))

    return put


def _getter(
    parameter: torch.Tensor, convert: Callable[[numpy.ndarray], numpy.ndarray]
) -> Callable[[], numpy.ndarray]:
    def get() -> numpy.ndarray:
        return convert(parameter.detach().cpu().numpy())

    return get
