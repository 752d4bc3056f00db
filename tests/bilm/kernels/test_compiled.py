"""A frozen layer by the library: against the definition, and what a row's bits depend on."""

import itertools
import math
import random

import pytest
import torch

from elmo_plugin.bilm.kernels import fast, library, reference, tuning
from elmo_plugin.bilm.kernels.compiled import CompiledLstm, PackedWeight, in_place
from elmo_plugin.bilm.kernels.compiled_training import log_sum_exp
from elmo_plugin.bilm.kernels.interface import Affine, LstmWeights, Precision, TokenWeights
from elmo_plugin.bilm.kernels.quantized import weight_in_int8, weight_in_int16
from tests.bilm.kernels import number_formats
from tests.cases import first_quick

pytestmark = pytest.mark.skipif(library.variant() is None, reason="no library of kernels")

CASES = [
    (variant, number_format)
    for variant in library.runnable_variants()
    for number_format in (library.FORMATS if variant.endswith("amx") else library.FORMATS[:-1])
]
each_format_of_each_variant = pytest.mark.parametrize(("variant", "number_format"), CASES)
# Where rows are rounded too: how much a value may differ that lies between two numbers, and how
# much most do.
ROUNDED = {"bfloat16": (0.03, 1e-6), "int8": (0.03, 1e-6), "int16": (2e-3, 2e-5)}


def random_weights(cell_size=320, dim=64, input_dim=96, clips=(0.5, 0.3)) -> LstmWeights:
    shapes = (4 * cell_size, input_dim), (4 * cell_size, dim), (dim, cell_size)
    inputs, state, projection = (torch.randn(shape) * 0.1 for shape in shapes)
    return LstmWeights(inputs, state, torch.randn(4 * cell_size), projection, *clips)


def random_start(batch_sizes, weights):
    size, (dim, cell_size) = batch_sizes[0], weights.projection.shape
    inputs = torch.randn(sum(batch_sizes), weights.input.shape[1])
    return inputs, batch_sizes, torch.randn(size, dim), torch.randn(size, cell_size)


def check(number_format, weights, start):
    before = [one.clone() for one in start[2:]]
    found = CompiledLstm(weights, number_format)(*start)
    if number_format == "float32":
        inputs, batch_sizes, *state = start
        exact = LstmWeights(*(one.double() for one in weights.tensors), *weights[4:])
        expected = reference.lstm_layer(
            inputs.double(), batch_sizes, *(one.double() for one in state), exact
        )
    else:
        expected = number_formats.lstm_layer(weights, number_format, *start)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        if number_format == "float32":
            torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)
        else:
            difference, (most, half) = (one - other).abs(), ROUNDED[number_format]
            assert difference.max() <= most
            assert difference.quantile(0.5) <= half
    for one, other in zip(start[2:], before):
        assert torch.equal(one, other)


# Falling, at once and slowly; more rows than are multiplied at a time, and one.
BATCH_SIZES = [[30, 30, 13, 12, 2, 1], [1, 1, 1], [12], [25, 24, 23], [300, 259], [70]]


@each_format_of_each_variant
@first_quick("seed", range(6), count=2)
def test_random_shapes_against_the_definition(variant, number_format, seed):
    """Any widths, multiples of 32 and others."""
    drawn = random.Random(seed)
    torch.manual_seed(seed)
    step = drawn.choice([1, 32])
    sizes = [step * max(1, drawn.randint(1, 400) // step) for _ in range(3)]
    weights = random_weights(*sizes, clips=drawn.choice([(0.5, 0.3), (None, None)]))
    with library.use_variant(variant):
        for batch_sizes in drawn.sample(BATCH_SIZES, 3):
            check(number_format, weights, random_start(batch_sizes, weights))


@each_format_of_each_variant
@pytest.mark.parametrize("scale", [1e3, 1e-20, 1e-41, 0.0])
def test_extreme_weights(variant, number_format, scale):
    """Large, small, denormal and zero."""
    torch.manual_seed(0)
    weights = random_weights(64, 64, 64, clips=(3.0, 3.0))
    weights = weights._replace(input=weights.input * scale, projection=weights.projection * scale)
    start = random_start([5, 3], weights)
    with library.use_variant(variant):
        found = CompiledLstm(weights, number_format)(*start)
    expected = number_formats.lstm_layer(weights, number_format, *start)
    for one, other in zip(found, expected):
        assert one.isfinite().all()
        # With large weights gates are steps: a rounded sum may fall on the other side of zero.
        near = (one - other).abs() <= 0.05
        assert near.float().mean() > (0.9 if scale > 1 else 1 - 1e-6)


@each_format_of_each_variant
@pytest.mark.parametrize("which", ["input", "state", "projection"])
def test_a_nan_in_a_weight_shows(variant, number_format, which):
    torch.manual_seed(0)
    weights = random_weights(48, 64, 64, clips=(3.0, 3.0))
    getattr(weights, which)[40, 7] = torch.nan
    with library.use_variant(variant):
        outputs = CompiledLstm(weights, number_format)(*random_start([3, 3], weights))[0]
    assert outputs[3:].isnan().any(dim=1).all()


@each_format_of_each_variant
def test_a_nan_stays_in_its_row(variant, number_format):
    torch.manual_seed(0)
    weights = random_weights(clips=(None, None))
    inputs, *others = random_start([14] * 2, weights)
    with library.use_variant(variant):
        cell = CompiledLstm(weights, number_format)
        expected = cell(inputs, *others)[0]
        # One whose bits are all set.
        inputs[5, 3] = torch.tensor(-1, dtype=torch.int32).view(torch.float32)
        found = cell(inputs, *others)[0]
    assert found[5::14].isnan().all()
    found[5::14] = expected[5::14]
    assert torch.equal(found, expected)


@each_format_of_each_variant
def test_a_row_does_not_depend_on_the_rows_beside_it_or_on_threads(
    variant, number_format, set_threads
):
    """Nor on how many steps' input products are taken at a time."""
    torch.manual_seed(0)
    weights = random_weights(dim=256)
    inputs, sizes, hidden, memory = random_start([37] * 8, weights)  # seven steps, then one
    with library.use_variant(variant):
        cell = CompiledLstm(weights, number_format)
    together = cell(inputs, sizes, hidden, memory)
    for count, row in zip(itertools.cycle([1, 2, 3, 5]), range(37)):
        set_threads(count)
        one = slice(row, row + 1)
        alone = cell(inputs[row::37], [1] * 8, hidden[one], memory[one])
        assert torch.equal(alone[0], together[0][row::37])
        assert torch.equal(alone[1], together[1][one])
        assert torch.equal(alone[2], together[2][one])


def test_all_variants_give_the_same_bits():
    torch.manual_seed(0)
    weights = random_weights(64, 128, 32)
    start = random_start([14, 3, 1], weights)
    for number_format in library.FORMATS[:-1]:
        found = []
        for variant in library.runnable_variants():
            with library.use_variant(variant):
                found.append(CompiledLstm(weights, number_format)(*start))
        for other in found[1:]:
            assert all(torch.equal(*both) for both in zip(found[0], other))


@pytest.mark.parametrize("usual", [torch.float16, torch.float64])
def test_another_default_dtype_changes_nothing(usual):
    torch.manual_seed(0)
    weights = random_weights()
    start = random_start([3, 2], weights)
    expected = CompiledLstm(weights, "int16")(*start)
    torch.set_default_dtype(usual)
    try:
        found = CompiledLstm(weights, "int16")(*start)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))


def test_by_hand():
    """`W = U = 0`, biases so that gates are 1/2, 1/2, tanh(1), 1/2; one in three of `P` is 1."""
    zeros, bias = torch.zeros(128, 32), torch.zeros(128)
    bias[64:96] = 1.0
    projection = torch.zeros(32, 32)
    projection[::3, 7] = 1.0
    weights = LstmWeights(zeros, zeros, bias, projection, None, None)
    cell = CompiledLstm(weights, "float32")
    outputs, hidden, memory = cell(torch.zeros(1, 32), [1], torch.ones(1, 32), torch.ones(1, 32))
    c = 0.5 * 1.0 + 0.5 * math.tanh(1.0)
    assert memory[0].tolist() == pytest.approx([c] * 32, abs=1e-6)
    h = 0.5 * math.tanh(c)
    assert outputs[0].tolist() == pytest.approx([h, 0.0, 0.0] * 10 + [h, 0.0], abs=1e-6)
    assert torch.equal(outputs, hidden)


def test_float32_inputs_have_no_second_weight():
    weights = random_weights()
    packed = PackedWeight(weights.input, in_place("float32"), blocks=4)
    assert packed.row_major
    assert packed.pointer == weights.input.data_ptr()


# Shapes of an LSTM layer's arguments that do not fit the others: memory beyond would be read.
MISFITS = [
    {"input": (192, 33)}, {"input": (256, 40)}, {"input": (194, 40)}, {"state": (192, 64)},
    {"state": (256, 40)}, {"bias": (160,)}, {"bias": (256,)}, {"bias": (190,)},
    {"projection": (40, 64)}, {"projection": (64, 48)}, {"inputs": (5, 33)}, {"inputs": (5, 48)},
    {"inputs": (4, 40)}, {"inputs": (9, 40)}, {"hidden": (3, 33)}, {"hidden": (2, 40)},
    {"cell": (3, 64)}, {"cell": (2, 48)}, {"sizes": [2, 3]},
]  # fmt: skip


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("misfit", MISFITS, ids=str)
def test_an_lstm_layer_whose_shapes_do_not_fit_is_refused(misfit, trains):
    shapes = {
        "inputs": (5, 40), "hidden": (3, 40), "cell": (3, 48), "input": (192, 40),
        "state": (192, 40), "bias": (192,), "projection": (40, 48), "sizes": [3, 2], **misfit,
    }  # fmt: skip
    sizes = shapes.pop("sizes")
    inputs, hidden, cell, *weights = (torch.randn(shape) for shape in shapes.values())
    weights = LstmWeights(*(one.requires_grad_(trains) for one in weights), 3.0, 3.0)
    with pytest.raises(ValueError, match=r"shapes \[.*, expected \[|batch sizes are"):
        fast.lstm_layer(inputs, sizes, hidden, cell, weights, Precision())


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(
    ("part", "shape"),
    [
        ("embedding", (20, 5)), ("filter", (64, 5, 2)), ("filter_bias", (60,)),
        ("highway", (128, 60)), ("highway", (136, 68)), ("highway_bias", (96,)),
        ("projection", (16, 60)), ("projection_bias", (12,)),
    ],
)  # fmt: skip
def test_a_token_layer_whose_shapes_do_not_fit_is_refused(part, shape, trains):
    shapes = {
        "embedding": (20, 4), "filter": (64, 4, 2), "filter_bias": (64,), "highway": (128, 64),
        "highway_bias": (128,), "projection": (16, 64), "projection_bias": (16,), part: shape,
    }  # fmt: skip
    embedding, *rest = (torch.randn(one, requires_grad=trains) for one in shapes.values())
    filters, highway, projection = map(Affine, rest[::2], rest[1::2])
    weights = TokenWeights(embedding, [filters], torch.relu, [highway], projection, 0)
    with pytest.raises(ValueError, match=r"shapes \[.*, expected \["):
        fast.token_layer(torch.ones(3, 6, dtype=torch.int64), weights, Precision())


@pytest.mark.parametrize("part", ["bias", "ids", "targets"])
def test_a_softmax_whose_shapes_do_not_fit_is_refused(part):
    shapes = {"bias": (7,), "ids": (7,), "targets": (5,), part: (4,)}
    bias, ids, targets = map(torch.zeros, shapes.values())
    expected = r"^bias, ids and targets of a softmax have shapes \[.*, expected \["
    with pytest.raises(ValueError, match=expected):
        log_sum_exp(torch.zeros(5, 16), torch.zeros(7, 16), bias, ids.long(), targets.long())


# --- quantized weights ---------------------------------------------------------------------------


def test_a_weight_in_int8_by_hand():
    weight = torch.arange(1.0, 4.0).view(3, 1) * torch.tensor([1.0, -1, 0, 0.5])
    weight[:, 2] = 127.0
    integers, scales = weight_in_int8(weight)
    # A half is rounded to the even one.
    assert integers.tolist() == [[1, -1, 127, 0], [2, -2, 127, 1], [3, -3, 127, 2]]
    assert scales.tolist() == pytest.approx([1 / 127] * 3)


def test_a_weight_in_int16_by_hand():
    """Its largest number bounds one row's scale, and the norm the other's."""
    weight = torch.zeros(2, 128)
    weight[0, :3] = torch.tensor([1.0, -0.5, 1 / 32767])
    weight[1] = -2.0
    integers, scales = weight_in_int16(weight)
    assert integers[0, :4].tolist() == [32767, -16384, 1, 0]
    norm = 2 * math.sqrt(128)
    assert integers[1].unique().tolist() == [round(-2.0 * 65532 / norm)]
    assert scales.tolist() == pytest.approx([1 / 32767 / 32750, norm / 65532 / 32750])


@pytest.mark.parametrize("dim", [32, 128, 160, 512, 4096])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_int16_do_not_overflow(dim, scale):
    """Products as large as they can be for their norms, of one sign; and of one number alone."""
    weight, rows = torch.zeros(64, dim), torch.zeros(5, dim)
    weight[:32], rows[:2] = scale, scale
    weight[1, dim // 2 :], rows[1, dim // 2 :] = -scale, -scale
    weight[32:, 7], rows[2:4, 7] = scale, -scale
    integers = weight_in_int16(weight)[0].unflatten(1, (-1, min(dim, 32))).double()
    assert integers.abs().max() <= 32767
    expected = rows.double() @ weight.t().double()
    found = number_formats.Int16Linear(weight)(rows)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    assert not found[4].any()


# --- where it runs -------------------------------------------------------------------------------


def kind(weights, dtype=None):
    return type(fast.frozen_lstm(weights, dtype))


def test_where_it_runs(no_library, monkeypatch):
    weights = random_weights(48, 64, 65)
    assert kind(weights) is not CompiledLstm
    assert fast.kernels_of(weights, None)["kernels"] == "PyTorch"
    monkeypatch.delenv(library.VARIABLE)
    assert kind(weights) is kind(weights, "float16") is CompiledLstm
    assert fast.kernels_of(weights, None).keys() == {"kernels"}
    double = LstmWeights(*(one.double() for one in weights.tensors), *weights[4:])
    assert kind(double) is not CompiledLstm


def test_small_layers_are_exact(monkeypatch):
    """Where fewer bytes would gain nothing."""
    weights = random_weights()

    def formats():
        return [fast.lstm_format(weights, one) for one in (None, "float16", "bfloat16", "int8")]

    tiles = "bfloat16" if library.variant().endswith("amx") else "int16"
    assert formats() == ["float32"] * 4
    monkeypatch.setattr(tuning, "MOST_EXACT", 0)
    assert formats() == ["float32", "float32", tiles, "int8"]
    monkeypatch.setattr(tuning, "LEAST_HALVED", 0)
    assert formats() == ["float32", "int16", tiles, "int8"]
