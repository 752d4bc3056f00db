"""The number formats of the C++ kernels (`formats.h`), defined in PyTorch."""

import functools

from elmo_plugin.bilm.kernels import reference
from elmo_plugin.bilm.kernels.interface import LstmModules
from elmo_plugin.bilm.kernels.quantized import (
    ROW_NORM,
    ExactLinear,
    Int8Linear,
    LinearKernel,
    largest_norm,
    weight_in_int16,
)


class BFloat16Linear(LinearKernel):
    """Product of rows and a weight, both rounded to bfloat16. Sums are float32, as in AMX."""

    def __init__(self, weight):
        super().__init__(weight.bfloat16().float())

    def product(self, rows):
        """Return `rows W^T`, without a bias, in float32."""
        return super().product(rows.bfloat16())


class Int16Linear(LinearKernel):
    """Product of rows and a weight, both quantized to int16, each row with a scale of its own."""

    def __init__(self, weight):
        integers, self._scales = weight_in_int16(weight)
        super().__init__(integers.double())

    def product(self, rows):
        """Return `rows W^T`, in float64, which represents sums of int16 products exactly."""
        norm = largest_norm(rows)
        integers = (rows * (ROW_NORM / norm)).round_()
        return super().product(integers) * self._scales.double() * norm


DEFINITIONS = {
    "float32": ExactLinear,
    "int16": Int16Linear,
    "int8": Int8Linear,
    "bfloat16": BFloat16Linear,
}


def lstm_layer(weights, number_format, inputs, batch_sizes, hidden, cell):
    """`reference.lstm_layer` with products in a number format."""
    define = DEFINITIONS[number_format]
    by_input, by_state, project = map(define, (weights.input, weights.state, weights.projection))
    with_bias = functools.partial(by_input, bias=weights.bias)
    modules = LstmModules(with_bias, by_state, project, *weights[4:])
    return reference.lstm_layer(inputs, batch_sizes, hidden, cell, modules)
