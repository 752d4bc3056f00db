"""Inference-only layers of a biLM on a CPU, which call the C++ kernels (`library.py`)."""

import contextlib
import ctypes
import math
import mmap
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, tuning
from elmo_plugin.bilm.kernels.interface import Affine, LstmWeights, TokenWeights
from elmo_plugin.bilm.kernels.quantized import ZERO_POINT, weight_in_int8, weight_in_int16
from elmo_plugin.bilm.kernels.token_layer import filter_matrix

# Width of a panel, a packed block of a weight. The kernels need multiples of it as dimensions.
COLUMNS = 32
# Rows of a weight to quantize at a time: few, so that temporary copies stay small.
ROWS_AT_ONCE = 64 * COLUMNS
# Bytes per number in each format.
SIZES = {"float32": 4, "int16": 2, "int8": 1, "bfloat16": 2}
# Size of a huge page of Linux, in bytes.
_LARGE_PAGE = 2 << 20

# --- packed weights ------------------------------------------------------------------------------


class PackedWeight:
    """
    Float32 weight on the CPU, in panels of 32 rows in one of `library.FORMATS` (see `formats.h`).
    `None` leaves it row-major: it is read in place, and copied only for padding. Row `blocks`, such
    as the four gates of an LSTM, are padded separately.
    """

    def __init__(self, weight: torch.Tensor, number_format: str | None, blocks: int = 1) -> None:
        weight = padded(weight, blocks)
        self.output_dim, self.input_dim = weight.shape
        self.row_major = number_format is None
        self.data = weight if number_format is None else _packed(weight, number_format)
        self.pointer = pointer(self.data)


def in_place(number_format: str) -> str | None:
    """Return the format of a large weight: in float32 it is read in place, not copied."""
    return None if number_format == "float32" else number_format


def padded(tensor: torch.Tensor, blocks: int = 1) -> torch.Tensor:
    """Zero-pad the row blocks of a weight or bias, and a weight's columns, to multiples of 32."""
    missing = -(len(tensor) // blocks) % COLUMNS, *(-size % COLUMNS for size in tensor.shape[1:])
    tensor = tensor.detach()
    if any(missing):
        padding = [size for after in reversed(missing) for size in (0, after)]
        tensor = functional.pad(tensor.unflatten(0, (blocks, -1)), padding).flatten(0, 1)
    return tensor.contiguous()


def _packed(weight: torch.Tensor, number_format: str) -> torch.Tensor:
    pointer(weight)  # an error unless it is float32 on the CPU, which `_lanes` takes for granted
    pack, threads = library.function("pack"), library.num_threads()
    lanes = weight.shape[1] * SIZES[number_format] // 4
    has_scales = number_format.startswith("int")  # one for each row
    panels = on_large_pages((len(weight), lanes + has_scales), torch.float32)
    for place, rows in zip(panels.split(ROWS_AT_ONCE), weight.split(ROWS_AT_ONCE), strict=True):
        numbers, scales = _lanes(rows, number_format)
        pack(*map(pointer, (numbers, scales, place)), len(rows), lanes, threads)
    return panels


def _lanes(rows: torch.Tensor, number_format: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Convert rows to a number format; return the bytes, reinterpreted as float32, and scales."""
    numbers, scales = rows, None
    if number_format == "int16":
        integers, scales = weight_in_int16(rows)
        numbers = integers.to(torch.int16)
    elif number_format == "int8":
        integers, scales = weight_in_int8(rows)
        numbers = integers.add_(ZERO_POINT).to(torch.uint8)
    elif number_format == "bfloat16":
        largest = torch.finfo(torch.bfloat16).max
        numbers = rows.clamp(-largest, largest).to(torch.bfloat16)
    return numbers.contiguous().view(torch.float32), scales


def on_large_pages(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """
    Return a tensor of zeros on the CPU. For a large tensor, ask Linux for huge pages (2 MB): fewer
    TLB misses speed up products with a weight that every step reads. Raise a `MemoryError` if there
    is no memory for it.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device="cpu")
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes of a layer: {error}") from error
    with contextlib.suppress(OSError):  # Linux may be built without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    # The tensor keeps the memory alive.
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def pointer(tensor: torch.Tensor | None, dtype: torch.dtype = torch.float32) -> int | None:
    """
    Return the address of a tensor's first element, `None` for `None`. Raise a `ValueError` if the
    tensor is not contiguous, not on the CPU, or not of this `dtype`.
    """
    if tensor is None:
        return None
    if tensor.is_contiguous() and tensor.dtype is dtype and tensor.is_cpu:
        return tensor.data_ptr()
    raise ValueError(
        f"a layer's tensor of shape {tuple(tensor.shape)} has dtype {tensor.dtype}, device "
        f"{tensor.device} and strides {tensor.stride()}, expected {dtype}, the CPU and contiguous "
        "values: all weights, inputs and states of a layer need one dtype and one device"
    )


def pointers(*tensors: torch.Tensor | None) -> list[int | None]:
    """Return the addresses of contiguous tensors, whatever their dtype."""
    return [None if one is None else pointer(one, one.dtype) for one in tensors]


def c_struct(*members: float | None) -> Any:
    """Return a C struct whose members are pointers, `int64_t`, and `double` for floats."""
    layout = "".join("d" if isinstance(one, float) else "q" for one in members)
    return ctypes.create_string_buffer(struct.pack(layout, *(one or 0 for one in members)))


def check_shapes(
    what: str, tensors: Sequence[torch.Tensor | None], *expected: tuple[int, ...]
) -> None:
    """Raise a `ValueError` if a shape is not the `expected` one: a kernel would read beyond it."""
    found = [None if one is None else tuple(one.shape) for one in tensors]
    if any(one not in (None, shape) for one, shape in zip(found, expected, strict=True)):
        raise ValueError(f"{what} have shapes {found}, expected {[*expected]}")


# --- the token layer -----------------------------------------------------------------------------


class CompiledAffine:
    """
    Linear layer `rows W^T + b`, or highway layer (`reference.highways`), on the CPU. The `kind` is
    `"linear"` or `"highway"`, and a bias may be `None`. With `packs`, weights that are not float32
    are packed once, here; each call packs the others.
    """

    def __init__(
        self, affine: Affine, number_format: str, kind: str = "linear", packs: bool = True
    ) -> None:
        self._blocks = 2 if kind == "highway" else 1
        output_dim, self._input_dim = affine.weight.shape
        num_rows = 2 * self._input_dim if kind == "highway" else output_dim
        check_shapes("a layer's weights", affine, (num_rows, self._input_dim), (num_rows,))
        self.weight = weight = PackedWeight(
            affine.weight, in_place(number_format) if packs else None, self._blocks
        )
        self.bias = None if affine.bias is None else padded(affine.bias, self._blocks)
        self._output_dim = output_dim // self._blocks
        self.struct = c_struct(
            weight.pointer, pointer(self.bias), weight.output_dim, weight.input_dim,
            weight.row_major,
        )  # fmt: skip
        self._name = kind, number_format

    def __call__(self, rows: torch.Tensor, saved: torch.Tensor | None = None) -> torch.Tensor:
        """
        Map rows, shape `(num_rows, input_dim)`, to outputs, shape `(num_rows, output_dim)`. `saved`
        gets what the gradient of a highway layer needs, two values for each output.
        """
        rows = padded_rows(rows, self._input_dim, self.weight.input_dim)
        outputs = rows.new_empty(len(rows), self.weight.output_dim // self._blocks)
        library.function(*self._name)(
            self.struct, *map(pointer, (rows, outputs, saved)), len(rows), library.num_threads()
        )
        return narrowed(outputs, self._output_dim)


class Convolutions:
    """
    Convolutions of the token layer with their maxima and activation, on the CPU. `number_format` is
    as in `PackedWeight`; the gradients' kernel reads row-major filters. All filters are one padded
    matrix, shape `(output_dim, depth)`.
    """

    def __init__(self, weights: TokenWeights, number_format: str | None) -> None:
        dim = weights.embedding.shape[1]
        for one in weights.convolutions:
            number, *_, width = one.weight.shape
            check_shapes("a convolution's weights", one, (number, dim, width), (number,))
        with torch.inference_mode(False), torch.no_grad():
            matrix = filter_matrix(weights)
            filters = PackedWeight(matrix, number_format)
            bias = padded(torch.cat([bias for _, bias in weights.convolutions]))
            self._embedding = embedding = weights.embedding.detach().clone()
        self.num_filters = len(matrix)
        self.output_dim, self.depth = filters.output_dim, filters.input_dim
        widths = [one.shape[2] for one, _ in weights.convolutions for _ in one]
        missing = self.output_dim - len(widths)
        padded_widths = torch.tensor([*widths, *[1] * missing], dtype=torch.int64, device="cpu")
        self._owners = filters, bias, padded_widths
        self.struct = c_struct(
            filters.pointer, *map(pointer, (bias, embedding)), padded_widths.data_ptr(),
            self.output_dim, self.depth, dim, max(widths), weights.padding_id,
            (torch.relu, torch.tanh).index(weights.activation), len(embedding),
        )  # fmt: skip
        if number_format is not None:
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
            self.struct, pointer(character_ids, torch.int64), *character_ids.shape,
            pointer(rows), *pointers(places), library.num_threads(),
        )  # fmt: skip
        return rows


class CompiledTokenLayer:
    """
    Token layer (`reference.token_layer`) with frozen weights, float32 on the CPU. Highway layers
    multiply in `number_format`, convolutions and projection in `precise_format`: int8, with one
    scale per row, is too coarse for the projection's heavy-tailed inputs.
    """

    def __init__(self, weights: TokenWeights, number_format: str, precise_format: str) -> None:
        self._convolutions = Convolutions(weights, precise_format)
        self._layers = [CompiledAffine(one, number_format, "highway") for one in weights.highways]
        projection = weights.projection
        if projection is not None:
            self._layers.append(CompiledAffine(projection, precise_format))

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
        rows = narrowed(self._convolutions(character_ids), self._convolutions.num_filters)
        for layer in self._layers:
            rows = layer(rows)
        return rows


# --- the LSTM ------------------------------------------------------------------------------------


class LstmOperands:
    """
    Weights of an LSTM layer as the library reads them; `formats` are those of the input weight and
    of the others, as in `PackedWeight`.
    """

    def __init__(self, weights: LstmWeights, *formats: str | None) -> None:
        gates, (dim, cell_size) = len(weights.input), weights.projection.shape
        self.widths = weights.input.shape[1], dim, cell_size
        shapes = (gates, self.widths[0]), (gates, dim), (gates,), (dim, gates // 4)
        check_shapes("an LSTM layer's weights", weights.tensors, *shapes)
        self.weights = inputs, state, projection = (
            PackedWeight(weights.input, formats[0], blocks=4),
            PackedWeight(weights.state, formats[1], blocks=4),
            PackedWeight(weights.projection, formats[1]),
        )
        self.bias = padded(weights.bias, blocks=4)
        self.padded_widths = inputs.input_dim, projection.output_dim, projection.input_dim
        input_dim, dim, cell_size = self.padded_widths
        self.struct = c_struct(
            inputs.pointer, pointer(self.bias), state.pointer, projection.pointer,
            cell_size, dim, input_dim, inputs.row_major,
            library.limit(weights.cell_clip), library.limit(weights.projection_clip),
        )  # fmt: skip

    def padded(self, *rows: torch.Tensor) -> list[torch.Tensor]:
        """Return contiguous inputs, hidden states and cells, padded with zeros."""
        return list(map(padded_rows, rows, self.widths, self.padded_widths))

    def run(
        self,
        function: Callable[..., bool],
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
        *saved: torch.Tensor | None,
    ) -> tuple[bool, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """
        Return whether an output is NaN, and the results of `reference.lstm_layer`. `saved` are the
        activations and cells that the gradient needs, or `None` twice.
        """
        _, dim, cell_size = self.widths
        counts = [one.shape[0] for one in (inputs, hidden, cell)]
        largest = max(batch_sizes, default=0)
        if (
            sum(batch_sizes) != counts[0]
            or min(counts[1:]) < largest
            or sorted(batch_sizes, reverse=True) != [*batch_sizes]
        ):
            raise ValueError(
                f"batch sizes are {batch_sizes} for {counts[0]} rows and {counts[1:]} states; "
                "expected falling sizes with this sum, and a state for each row of the first"
            )
        inputs, *states = self.padded(inputs, hidden, cell)
        # Cloned, because the kernel overwrites them with the final state.
        hidden, cell = (one.clone() for one in states)
        outputs = hidden.new_empty(len(inputs), self.padded_widths[1])
        rows = *map(pointer, (inputs, hidden, cell, outputs)), *pointers(*saved)
        gave_nan = function(
            self.struct, c_struct(*rows), *steps_of(batch_sizes), library.num_threads()
        )
        results = narrowed(outputs, dim), narrowed(hidden, dim), narrowed(cell, cell_size)
        return gave_nan, results


class CompiledLstm:
    """LSTM layer with frozen weights, float32 on the CPU. One C++ call runs all steps."""

    def __init__(self, weights: LstmWeights, number_format: str) -> None:
        self.gave_nan = False
        self._operands = LstmOperands(weights, in_place(number_format), number_format)
        self._run_layer = library.function("lstm_layer", number_format)

    def __call__(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the layer, see `reference.lstm_layer`."""
        arguments = inputs, batch_sizes, hidden, cell, None, None
        gave_nan, results = self._operands.run(self._run_layer, *arguments)
        self.gave_nan |= gave_nan
        return results


def steps_of(batch_sizes: Sequence[int]) -> tuple[Any, int]:
    """Return the number of rows of each step as an array of C, and the number of steps."""
    return (ctypes.c_int64 * len(batch_sizes))(*batch_sizes), len(batch_sizes)


def padded_rows(rows: torch.Tensor, width: int, padded_width: int) -> torch.Tensor:
    """Return contiguous rows, of shape `(num_rows, width)`, with zeros up to `padded_width`."""
    if rows.shape[1] != width:
        check_shapes("a layer's rows", [rows], (len(rows), width))
    missing = padded_width - width
    return (functional.pad(rows, (0, missing)) if missing else rows).contiguous()


def narrowed(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Return the first columns; no view, which autograd would not let callers overwrite."""
    return rows if rows.shape[1] == width else rows[:, :width].clone()
