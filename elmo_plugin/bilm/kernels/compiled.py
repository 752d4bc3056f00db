"""Inference-only layers of a biLM on a CPU, which call the C++ kernels (`library.py`)."""

import contextlib
import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, tuning
from elmo_plugin.bilm.kernels.interface import Affine, LstmWeights, TokenWeights
from elmo_plugin.bilm.kernels.lstm_inference import FrozenLstm
from elmo_plugin.bilm.kernels.quantized import ZERO_POINT, weight_in_int8, weight_in_int16
from elmo_plugin.bilm.kernels.token_layer import filter_matrix

# Width of a panel, a packed block of a weight. The kernels need multiples of it as dimensions.
COLUMNS = 32
# Rows of a weight to quantize at a time: few, so that temporary copies stay small.
ROWS_AT_ONCE = 64 * COLUMNS
# Bytes per number in each format, and the formats with one scale for each row of a weight.
SIZES = {"int16": 2, "int8": 1, "bfloat16": 2}
SCALED = ("int16", "int8")
# Size of a huge page of Linux, in bytes.
_LARGE_PAGE = 2 << 20

# --- packed weights ------------------------------------------------------------------------------


class PackedWeight:
    """
    Weight in the memory layout that the C++ kernels read: panels of 32 rows, see `formats.h`.

    # Parameters

    weight : `torch.Tensor`
        Float32, shape `(output_dim, input_dim)`, on the CPU.
    number_format : `str`
        `"float32"`, `"int16"`, `"int8"` or `"bfloat16"`.
    blocks : `int`, optional (default = `1`)
        Number of row blocks, such as the four gates of an LSTM. Each is padded separately.
    copy : `bool`, optional (default = `True`)
        Whether to pack a float32 weight; other formats are always packed. If `False`, the kernels
        read the row-major weight in place; it is copied only for padding.

    # Attributes

    row_major : `bool`
        Whether the weight is row-major instead of packed into panels.
    output_dim, input_dim : `int`
        Shape of the padded weight, multiples of 32.
    """

    def __init__(
        self, weight: torch.Tensor, number_format: str, blocks: int = 1, copy: bool = True
    ) -> None:
        weight = padded(weight.detach(), blocks)
        self.output_dim, self.input_dim = weight.shape
        self.row_major = number_format == "float32" and not copy
        self._data = weight if self.row_major else _packed(weight, number_format)

    @property
    def pointer(self) -> int:
        """Address of the weight's first element."""
        return pointer(self._data)


def padded(weight: torch.Tensor, blocks: int = 1) -> torch.Tensor:
    """Zero-pad a weight's columns, and the rows of each row block, to multiples of 32."""
    rows, columns = (-size % COLUMNS for size in (len(weight) // blocks, weight.shape[1]))
    if rows or columns:
        weight = functional.pad(weight.unflatten(0, (blocks, -1)), (0, columns, 0, rows)).flatten(
            0, 1
        )
    return weight.contiguous()


def padded_vector(vector: torch.Tensor, blocks: int = 1) -> torch.Tensor:
    """Return a copy of a bias, with each of its blocks zero-padded to a multiple of 32."""
    missing = -(len(vector) // blocks) % COLUMNS
    return (
        functional.pad(vector.detach().unflatten(0, (blocks, -1)), (0, missing)).flatten().clone()
    )


def _packed(weight: torch.Tensor, number_format: str) -> torch.Tensor:
    pack = library.function("pack")
    threads = library.num_threads()
    if number_format == "float32":
        panels = on_large_pages(tuple(weight.shape), torch.float32)
        pack(pointer(weight), None, pointer(panels), *weight.shape, threads)
        return panels
    lanes = weight.shape[1] * SIZES[number_format] // 4
    scaled = number_format in SCALED
    panels = on_large_pages((len(weight), lanes + scaled), torch.float32)
    for place, rows in zip(panels.split(ROWS_AT_ONCE), weight.split(ROWS_AT_ONCE), strict=True):
        numbers, scales = _lanes(rows, number_format)
        address = None if scales is None else pointer(scales)
        pack(numbers.data_ptr(), address, place.data_ptr(), len(rows), lanes, threads)
    return panels


def _lanes(rows: torch.Tensor, number_format: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Convert rows to a number format; return the bytes, reinterpreted as float32, and scales."""
    scales = None
    if number_format == "int16":
        integers, scales = weight_in_int16(rows)
        numbers = integers.to(torch.int16)
    elif number_format == "int8":
        integers, scales = weight_in_int8(rows)
        numbers = integers.add_(ZERO_POINT).to(torch.uint8)
    else:
        largest = torch.finfo(torch.bfloat16).max
        numbers = rows.clamp(-largest, largest).to(torch.bfloat16)
    return numbers.contiguous().view(torch.float32), scales


def on_large_pages(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """
    Return a tensor of zeros on the CPU. For a large tensor, ask Linux for huge pages (2 MB). They
    cause fewer TLB misses, which speeds up products with a weight that every step reads.

    # Raises

    `MemoryError`
        If there is no memory for a large tensor.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device="cpu")
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes of a packed weight: {error}") from error
    with contextlib.suppress(OSError):  # Linux may be built without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    # The tensor keeps the memory alive.
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def pointer(tensor: torch.Tensor, dtype: torch.dtype = torch.float32) -> int:
    """
    Return the address of a tensor's first element.

    # Raises

    `ValueError`
        If the tensor is not contiguous, not on the CPU, or not of this `dtype`.
    """
    if tensor.is_contiguous() and tensor.dtype is dtype and tensor.is_cpu:
        return tensor.data_ptr()
    raise ValueError(
        f"a layer's tensor of shape {tuple(tensor.shape)} has dtype {tensor.dtype}, device "
        f"{tensor.device} and strides {tensor.stride()}, expected {dtype}, the CPU and contiguous "
        "values: all weights, inputs and states of a layer need one dtype and one device"
    )


def fields(pointers: str, counts: str, floats: str = "") -> list[tuple[str, Any]]:
    """Return the fields of a C struct, given the names of its pointers, counts and floats."""
    kinds = (pointers, ctypes.c_void_p), (counts, ctypes.c_int64), (floats, ctypes.c_float)
    return [(name, kind) for names, kind in kinds for name in names.split()]


# --- the token layer -----------------------------------------------------------------------------


class _Convolution(ctypes.Structure):
    """C struct `Convolution` of `token_layer.h`."""

    _fields_ = fields(
        "filters bias embedding widths",
        "num_filters depth char_embedding_dim widest padding_id is_tanh",
    )


class CompiledLinear:
    """
    Linear layer `rows W^T + b` with a frozen float32 weight and bias, on the CPU. `number_format`
    and `blocks` are as in `PackedWeight`.
    """

    def __init__(self, affine: Affine, number_format: str, blocks: int = 1) -> None:
        self._weight = PackedWeight(affine.weight, number_format, blocks, copy=False)
        self._bias = padded_vector(affine.bias, blocks)
        self._number_format = number_format
        self._output_dim = len(affine.bias)
        self.arguments = (
            self._weight.pointer, self._weight.input_dim, self._weight.row_major,
            pointer(self._bias),
        )  # fmt: skip

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Map rows, shape `(num_rows, input_dim)`, to outputs, shape `(num_rows, output_dim)`."""
        rows = padded_rows(rows, self._weight.input_dim).contiguous()
        outputs = rows.new_empty(len(rows), self._weight.output_dim)
        library.function("linear", self._number_format)(
            *self.arguments, pointer(rows), outputs.data_ptr(), *outputs.shape,
            library.num_threads(),
        )  # fmt: skip
        return outputs[:, : self._output_dim]


class CompiledHighway(CompiledLinear):
    """Highway layer (`reference.highways`) with frozen weights, in two `blocks`."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the outputs, which have the shape of `rows`."""
        outputs = torch.empty_like(rows)
        library.function("highway", self._number_format)(
            *self.arguments, pointer(rows), outputs.data_ptr(), None, len(rows),
            library.num_threads(),
        )  # fmt: skip
        return outputs


class Convolutions:
    """
    Convolutions of the token layer with their maxima and activation.

    # Parameters

    weights : `TokenWeights`
        Float32, on the CPU.
    number_format : `str`
        Number format of the products.
    copy : `bool`, optional (default = `True`)
        If `False`, the filters are row-major, as the gradients' kernel reads them.

    # Attributes

    arguments : `Any`
        Pointer to the C struct `Convolution`.
    output_dim, depth : `int`
        Shape of the padded matrix of all filters.
    """

    def __init__(self, weights: TokenWeights, number_format: str, copy: bool = True) -> None:
        with torch.inference_mode(False), torch.no_grad():
            matrix = filter_matrix(weights)
            filters = PackedWeight(matrix, number_format, copy=copy)
            bias = padded_vector(torch.cat([bias for _, bias in weights.convolutions]))
            embedding = weights.embedding.detach().clone()
            convolutions = [weight for weight, _ in weights.convolutions]
            widths = torch.ones(filters.output_dim, dtype=torch.int64, device="cpu")
            widths[: len(matrix)] = torch.cat([
                torch.full((len(one),), one.shape[2], device="cpu") for one in convolutions
            ])  # fmt: skip
        self.output_dim, self.depth = filters.output_dim, filters.input_dim
        self._embedding = embedding
        self._owners = filters, bias, widths
        struct = _Convolution(
            filters.pointer, pointer(bias), pointer(embedding), widths.data_ptr(),
            self.output_dim, self.depth, embedding.shape[1],
            max(one.shape[2] for one in convolutions), weights.padding_id,
            (torch.relu, torch.tanh).index(weights.activation),
        )  # fmt: skip
        self.arguments = ctypes.byref(struct)
        self._convolve = library.function("convolution", number_format)

    def check(self, character_ids: torch.Tensor) -> None:
        """Raise an `IndexError` if a character id has no embedding."""
        if character_ids.numel():
            least, greatest = (int(one) for one in character_ids.aminmax())
            if least < 0 or greatest >= len(self._embedding):
                raise IndexError(
                    f"character ids are {least} to {greatest}, expected 0 to "
                    f"{len(self._embedding) - 1}"
                )

    def __call__(
        self, character_ids: torch.Tensor, places: torch.Tensor | None = None
    ) -> torch.Tensor:
        """
        Return activations, shape `(num_rows, output_dim)`. `places`, int32 and of that shape, gets
        the position of each maximum.
        """
        rows = self._embedding.new_empty(len(character_ids), self.output_dim)
        self._convolve(
            self.arguments, pointer(character_ids, torch.int64), *character_ids.shape,
            rows.data_ptr(),
            None if places is None else places.data_ptr(), library.num_threads(),
        )  # fmt: skip
        return rows


class CompiledTokenLayer:
    """
    Token layer (`reference.token_layer`) without gradients, with frozen weights.

    # Parameters

    weights : `TokenWeights`
        Float32, on the CPU. They must not change (see `derived.py`).
    number_format : `str`
        Number format of the highway layers.
    precise_format : `str`
        Number format of the convolutions and the projection. int8 is too coarse for the projection:
        its inputs are heavy-tailed, and int8 has only one scale per row.
    """

    def __init__(self, weights: TokenWeights, number_format: str, precise_format: str) -> None:
        self._convolutions = Convolutions(weights, precise_format)
        self._layers: list[CompiledLinear] = [
            CompiledHighway(one, number_format, blocks=2) for one in weights.highways
        ]
        projection = weights.projection
        if projection is not None:
            self._layers.append(CompiledLinear(projection, precise_format))
        affine = weights.convolutions if projection is None else [projection]
        self._output_dim = sum(len(bias) for _, bias in affine)

    def __call__(self, character_ids: torch.Tensor) -> torch.Tensor:
        """
        Return token vectors, shape `(num_rows, projection_dim)`, from int64 character ids, shape
        `(num_rows, num_characters)`. Raise an `IndexError` if one has no embedding.
        """
        self._convolutions.check(character_ids)
        parts = character_ids.contiguous().split(tuning.TOKENS_AT_ONCE_IN_LIBRARY)
        found = [self._encode(part) for part in parts]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _encode(self, character_ids: torch.Tensor) -> torch.Tensor:
        rows = self._convolutions(character_ids)
        for layer in self._layers:
            rows = layer(rows)
        return rows[:, : self._output_dim]


# --- the LSTM ------------------------------------------------------------------------------------


class Layer(ctypes.Structure):
    """C struct `Layer` of `lstm.h`."""

    _fields_ = fields(
        "input bias state projection", "width dim input_dim row_major", "cell_clip projection_clip"
    )


class CompiledLstm(FrozenLstm):
    """
    LSTM layer (`reference.lstm_layer`) without gradients, with frozen weights. One C++ call runs
    all steps. Weights are float32, on the CPU; `number_format` is as in `PackedWeight`.
    """

    def __init__(self, weights: LstmWeights, number_format: str) -> None:
        self.gave_nan = False
        # In float32 the input weight, which is large, is read in place instead of copied.
        self._weights = (
            PackedWeight(weights.input, number_format, blocks=4, copy=False),
            PackedWeight(weights.state, number_format, blocks=4),
            PackedWeight(weights.projection, number_format),
        )
        inputs, state, projection = self._weights
        self._bias = padded_vector(weights.bias, blocks=4)
        self._layer = Layer(
            inputs.pointer, pointer(self._bias), state.pointer, projection.pointer,
            projection.input_dim, projection.output_dim, inputs.input_dim, inputs.row_major,
            library.limit(weights.cell_clip), library.limit(weights.projection_clip),
        )  # fmt: skip
        self._run_layer = library.function("lstm_layer", number_format)

    def __call__(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the layer, see `Backend.lstm_layer`."""
        layer, (dim, cell_size) = self._layer, (hidden.shape[1], cell.shape[1])
        inputs = padded_rows(inputs, layer.input_dim).contiguous()
        # Copied, because the kernel overwrites them with the final state.
        hidden, cell = (
            padded_rows(one, width).clone(memory_format=torch.contiguous_format)
            for one, width in ((hidden, layer.dim), (cell, layer.width))
        )
        outputs = hidden.new_empty(len(inputs), layer.dim)
        self.gave_nan |= self._run_layer(
            ctypes.byref(layer),
            *map(pointer, (inputs, hidden, cell, outputs)), None, None,
            (ctypes.c_int64 * len(batch_sizes))(*batch_sizes), len(batch_sizes),
            library.num_threads(),
        )  # fmt: skip
        if (layer.dim, layer.width) != (dim, cell_size):
            return outputs[:, :dim], hidden[:, :dim], cell[:, :cell_size]
        return outputs, hidden, cell


def padded_rows(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Return rows with `width` columns, the missing ones filled with zeros."""
    missing = width - rows.shape[1]
    return functional.pad(rows, (0, missing)) if missing else rows
