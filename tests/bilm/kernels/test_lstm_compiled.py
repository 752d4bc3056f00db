"""The frozen layer in C++: against the definition, what a row's bits depend on, where it runs."""

import math
import platform
from unittest import mock

import pytest
import torch

from elmo_plugin.bilm.kernels import chooser, compiled, lstm_compiled, reference
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.lstm_compiled import (
    ROWS_AT_ONCE,
    CompiledLstm,
    in_panels,
    usable,
    with_rounded_rows,
)
from elmo_plugin.bilm.kernels.processors import use_processor

pytestmark = pytest.mark.skipif(compiled.compiler() is None, reason="no C++ compiler")

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int16]
# Of which rows are rounded, too: how much a number may differ that lies between two others, and how
# much most do, since those of whole numbers of 16 bits are added up in float32, too.
ROUNDED = {torch.bfloat16: (0.03, 1e-6), torch.int8: (0.03, 1e-6), torch.int16: (2e-3, 2e-5)}
CLIPS = [(0.5, 0.3), (None, None)]
# Falling, at once and slowly; more rows than are multiplied at a time, and one.
BATCH_SIZES = [[30, 30, 13, 12, 2, 1], [1, 1, 1], [12], [25, 24, 23], [300, 259]]


def random_weights(
    cell_size=320, dim=64, input_dim=96, clips=(0.5, 0.3), dtype=torch.float32
) -> LstmWeights:
    """As they are in half precision where it rounds them."""
    torch.manual_seed(0)
    shapes = (4 * cell_size, input_dim), (4 * cell_size, dim), (dim, cell_size)
    rounded = torch.float16 if dtype == torch.float16 else torch.float32
    inputs, state, projection = ((torch.randn(shape) * 0.1).to(rounded).float() for shape in shapes)
    return LstmWeights(inputs, state, torch.randn(4 * cell_size), projection, *clips)


def layer(*sizes, dtype=torch.float32, elements=1 << 22, **others):
    """A layer and its weights."""
    weights = random_weights(*sizes, dtype=dtype, **others)
    return CompiledLstm(weights, dtype, elements), weights


def start(batch_sizes, weights):
    size, (dim, cell_size) = batch_sizes[0], weights.projection.shape
    inputs = torch.randn(sum(batch_sizes), weights.input.shape[1])
    return inputs, batch_sizes, torch.randn(size, dim), torch.randn(size, cell_size)


def double(weights):
    return LstmWeights(*(one.double() for one in weights.tensors), *weights[4:])


@pytest.mark.parametrize("usual", [torch.float16, torch.float64])
def test_another_default_dtype_changes_nothing(usual):
    frozen, weights = layer()
    inputs = start([3, 2], weights)
    expected = frozen(*inputs)
    lstm_compiled._kept.__dict__.clear()
    torch.set_default_dtype(usual)
    try:
        found = frozen(*inputs)
        assert lstm_compiled._kept.products.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(one.equal(other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("clips", CLIPS)
@pytest.mark.parametrize("batch_sizes", BATCH_SIZES, ids=str)
@pytest.mark.parametrize(
    "sizes", [(320, 64, 96), (32, 32, 32), (544, 288, 288), (96, 256, 32)], ids=str
)
def test_against_the_definition_in_float64(sizes, batch_sizes, clips, dtype):
    """Of rounded rows step by step in PyTorch: a number between two others may be either."""
    cell, weights = layer(*sizes, clips, dtype=dtype)
    inputs, _, hidden, memory = start(batch_sizes, weights)
    before = hidden.clone(), memory.clone()
    found = cell(inputs, batch_sizes, hidden, memory)
    if dtype in ROUNDED:
        expected = with_rounded_rows(weights, dtype, inputs, batch_sizes, hidden, memory)
    else:
        given = inputs.double(), batch_sizes, hidden.double(), memory.double()
        expected = reference.lstm_layer(*given, double(weights))
    for one, other in zip(found, expected, strict=True):
        if dtype in ROUNDED:
            difference, (most, half) = (one - other).abs(), ROUNDED[dtype]
            assert difference.max() <= most
            assert difference.quantile(0.5) <= half
        else:
            torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)
    assert torch.equal(hidden, before[0])
    assert torch.equal(memory, before[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_does_not_depend_on_the_rows_beside_it_or_on_threads(dtype):
    """Nor on how many steps' input products are taken at a time."""
    cell, weights = layer(dim=256, dtype=dtype)
    inputs, sizes, hidden, memory = start([37] * 3, weights)
    together = cell(inputs, sizes, hidden, memory)
    few, _ = layer(dim=256, dtype=dtype, elements=1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        for row in range(37):
            one = slice(row, row + 1)
            alone = few(inputs[row::37], [1] * 3, hidden[one], memory[one])
            assert torch.equal(alone[0], together[0][row::37])
            assert torch.equal(alone[1], together[1][one])
            assert torch.equal(alone[2], together[2][one])
    finally:
        torch.set_num_threads(threads)


# Other vectors: of eight numbers, and of a processor that cannot multiply and add at once.
LEVELS = ["x86-64-v3", "x86-64-v2"]


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other levels")
@pytest.mark.parametrize("level", LEVELS)
def test_its_bits_are_those_of_every_processor(level, uncompiled, monkeypatch):
    """Weights in half precision of every size there is, down to the least."""
    runs = []
    for dtype in DTYPES:
        cell, weights = layer(64, 128, 32, dtype=dtype)
        if dtype.is_floating_point:
            state = cell._state.view(-1)
            state[: 1 << 13] *= 2.0 ** -torch.arange(1 << 13).remainder(28)
        arguments = start([14, 3, 1], weights)
        runs.append((cell, arguments, cell(*arguments)))
    compiled._library.cache_clear()
    compiled._function.cache_clear()
    flags = tuple(f"-march={level}" if "-march" in one else one for one in compiled.FLAGS)
    monkeypatch.setattr(compiled, "FLAGS", flags)
    for cell, arguments, found in runs:
        for one, other in zip(cell(*arguments), found, strict=True):
            assert torch.equal(one, other)
    assert len(list((uncompiled / "elmo_plugin").iterdir())) == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_nan_stays_in_its_row(dtype):
    cell, weights = layer(clips=(None, None), dtype=dtype)
    inputs, *others = start([14] * 2, weights)
    expected = cell(inputs, *others)[0]
    # One whose bits are all set, too.
    inputs[5, 3] = torch.tensor(-1, dtype=torch.int32).view(torch.float32)
    found = cell(inputs, *others)[0]
    assert found[5::14].isnan().all()
    found[5::14] = expected[5::14]
    assert torch.equal(found, expected)


def test_weights_beyond_half_precision():
    """As large as it has numbers, not infinite: a zero times it is a zero."""
    weight = torch.full((32, 2), 1e6)
    assert in_panels(-weight, torch.float16).unique().tolist() == [-65504.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(32, 32), (96, 544), (2 * ROWS_AT_ONCE + 64, 64)], ids=str)
def test_numbers_in_panels(shape, dtype):
    """Of a weight that does not lie in order, too."""
    weight = torch.randn(shape[::-1]).t()
    panels = in_panels(weight, dtype)
    assert (panels.dtype, panels.is_contiguous()) == (dtype, True)
    assert torch.equal(panels, weight.to(dtype).reshape(-1, 32, shape[1]).transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.int16])
def test_rows_are_converted_alone(dtype):
    weight = torch.randn(2 * ROWS_AT_ONCE + 64, 64)
    alone = torch.cat([in_panels(rows, dtype) for rows in weight.split(32)])
    assert torch.equal(in_panels(weight, dtype), alone)


def test_float32_inputs_have_no_second_weight():
    cell, weights = layer()
    assert cell._input_linear.weight.data_ptr() == weights.input.data_ptr()


def test_bytes_in_panels():
    """By hand: 64 rows of 8 numbers; of each panel four numbers of a row, then of the next row."""
    weight = torch.arange(64.0).view(64, 1) * torch.tensor([1.0, -1, 0, 0.5, 0, 0, 0, 0])
    weight[:, 7] = 127.0
    panels = in_panels(weight, torch.int8)
    assert (panels.shape, panels.dtype) == ((2, 32 * 8 + 4 * 32), torch.uint8)
    # A half is rounded to the even one.
    assert panels[0, 12:16].tolist() == [131, 125, 128, 130]
    assert panels[1, 128 + 4 : 128 + 8].tolist() == [128, 128, 128, 255]
    pairs = in_panels(weight, torch.bfloat16).view(2, 4, 32, 2)
    assert torch.equal(pairs.float(), weight.view(2, 32, 4, 2).transpose(1, 2))
    scales = panels[:, 256:].contiguous().view(torch.float32)
    assert scales.flatten().tolist() == pytest.approx([1 / 127] * 64)


def test_integers_of_16_bits_in_panels():
    """By hand: numbers of two rows, one whose largest number bounds its scale, and one its norm."""
    weight = torch.zeros(32, 128)
    weight[3, :3] = torch.tensor([1.0, -0.5, 1 / 32767])
    weight[5] = -2.0
    panels = in_panels(weight, torch.int16)
    assert (panels.shape, panels.dtype) == ((1, 32 * (128 + 2)), torch.int16)
    pairs = panels[0, : 32 * 128].view(64, 32, 2)
    assert pairs[:2, 3].tolist() == [[32767, -16384], [1, 0]]
    norm = 2 * math.sqrt(128)
    assert pairs[:, 5].unique().tolist() == [round(-2.0 * 65532 / norm)]
    scales = panels[:, 32 * 128 :].contiguous().view(torch.float32)[0]
    assert scales[3] == pytest.approx(1 / 32767 / 32750)
    assert scales[5] == pytest.approx(norm / 65532 / 32750)


def product(rows, weight, dtype):
    """Of rows with a weight in this type."""
    found = torch.empty(len(weight) // 32, len(rows), 32)
    compiled.input_products(rows, in_panels(weight, dtype), torch.zeros(len(weight)), found)
    return found.transpose(0, 1).reshape(len(rows), -1)


@pytest.mark.parametrize("dim", [32, 128, 160, 512, 4096])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_integers_of_16_bits_do_not_overflow(dim, scale):
    """Products as large as they can be for their norms, of one sign; and of one number alone."""
    weight, rows = torch.zeros(64, dim), torch.zeros(5, dim)
    weight[:32], rows[:2] = scale, scale
    weight[1, dim // 2 :], rows[1, dim // 2 :] = -scale, -scale
    weight[32:, 7], rows[2:4, 7] = scale, -scale
    expected = rows.double() @ weight.t().double()
    found = product(rows, weight, torch.int16)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    assert not found[4].any()


@pytest.mark.parametrize("dim", [32, 288, 4096])
@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 30])
def test_integers_of_16_bits_are_more_exact_than_halves(dim, count):
    """Of numbers of about the same size; their means are not zero."""
    weight, rows = torch.randn(64, dim) + 0.2, torch.randn(count, dim) + 0.5
    expected = rows.double() @ weight.t().double()
    whole, half = ((product(rows, weight, dtype) - expected).norm() for dtype in (
        torch.int16, torch.float16,
    ))  # fmt: skip
    assert whole < half <= 4e-4 * expected.norm()


def test_by_hand():
    """`W = U = 0`, biases so that gates are 1/2, 1/2, tanh(1), 1/2; one in three of `P` is 1."""
    zeros, bias = torch.zeros(128, 32), torch.zeros(128)
    bias[64:96] = 1.0
    projection = torch.zeros(32, 32)
    projection[::3, 7] = 1.0
    weights = LstmWeights(zeros, zeros, bias, projection, None, None)
    cell = CompiledLstm(weights, torch.float32, 1 << 20)
    outputs, hidden, memory = cell(torch.zeros(1, 32), [1], torch.ones(1, 32), torch.ones(1, 32))
    c = 0.5 * 1.0 + 0.5 * math.tanh(1.0)
    assert memory[0].tolist() == pytest.approx([c] * 32, abs=1e-6)
    h = 0.5 * math.tanh(c)
    assert outputs[0].tolist() == pytest.approx([h, 0.0, 0.0] * 10 + [h, 0.0], abs=1e-6)
    assert torch.equal(outputs, hidden)


FAULTS = [
    (None, "std::fma(f, cell, i * g)", "i * g"),
    (None, "clipped(place[j], projection_clip)", "place[j]"),
    (None, "sums_apart, k > 0,", "sums_apart, false,"),
    (None, "panel(state, width, dim) - state", "panel(state, 0, dim) - state"),
    (None, "dim - k : depth", "dim - k - 1 : depth"),
    (None, "sizes[step + 1] : 0", "sizes[step + 1] : size"),
    (None, "added += size * COLUMNS", "added += size"),
    (None, "] += bias[column + j]", "] += bias[j]"),
    (None, "weight + column * rows.dim", "weight"),
    (None, "rows + v * LANES * dim + k", "rows + k"),
    (None, "laid_out, output, COLUMNS", "laid_out, output, 0"),
    ("int8", "panel(weight, column, rows.dim)", "panel(weight, 0, rows.dim)"),
    (None, "group * count / groups, end", "group, end"),
    (None, "FROZEN_LAYER(frozen_layer_", "FROZEN_LAYER("),
    ("int8", "filled(-bits_of(about[1]))", "filled(0)"),
    ("int8", "about[0] = largest;", "about[0] = 1.0f;"),
    ("int8", "last = k + end == rows.dim", "last = true"),
    ("int8", "bits > most ? bits : most", "bits"),
    ("int8", "BEHIND = sizeof(float)", "BEHIND = 0"),
    ("int8", "gated.finish(size);", ""),
    ("bfloat16", "(bits >> 16 & 1)) >> 16", "(bits >> 16 & 1)) >> 15"),
    ("bfloat16", "filled(0.0f); }", "filled(1.0f); }"),
    ("int8", "before.finish(staying);", ""),
    ("float16", "add ? sum + load(left) : sum", "sum"),
    (
        "float16",
        "Integers& sums, const float*) { sums = filled(0); }",
        "Integers&, const float*) {}",
    ),
    ("float16", "BLOCK<Int16> = 128", "BLOCK<Int16> = 4096"),
    ("float16", "32750.0f / about[0]", "32000.0f / about[0]"),
    ("float16", "most = larger(most, squares[0]);", ""),
    ("float16", "sizeof(float) / sizeof(Int16)", "0"),
]


@pytest.mark.parametrize(("dtype", "text", "wrong"), FAULTS)
def test_a_wrong_layer_is_not_used(written_wrong, dtype, text, wrong):
    weights = random_weights()
    written_wrong(text, wrong)
    warning = pytest.warns(UserWarning, match=r"LSTM layer in C\+\+ is not used")
    with mock.patch.multiple(chooser.tuning, MOST_EXACT=0, LEAST_HALVED=0), warning:
        assert kind(weights, dtype, "avx512_bf16_avx_vnni") is not CompiledLstm


def test_tried_once(uncompiled, monkeypatch):
    tries, trial = [], lstm_compiled._trial
    monkeypatch.setattr(lstm_compiled, "_trial", lambda *one: tries.append(one) or trial(*one))
    weights = random_weights()
    for _ in range(2):
        assert usable(weights, torch.float32)
    assert len(tries) == 1


def kind(weights, dtype=None, processor="amx", in_cpp=None):
    with use_processor(processor):
        return type(chooser.frozen_lstm(weights, dtype, in_cpp))


def test_where_it_runs(monkeypatch):
    weights = random_weights()
    assert kind(weights) is kind(weights, "float16") is CompiledLstm
    assert kind(weights, processor="safe") is not CompiledLstm
    assert kind(weights, processor="safe", in_cpp=True) is CompiledLstm
    assert kind(weights, in_cpp=False) is not CompiledLstm
    for cell_size, dim, input_dim in ((48, 64, 64), (64, 48, 64), (64, 64, 48)):
        other = LstmWeights(
            torch.zeros(4 * cell_size, input_dim), torch.zeros(4 * cell_size, dim),
            torch.zeros(4 * cell_size), torch.zeros(dim, cell_size), 3.0, 3.0,
        )  # fmt: skip
        assert kind(other) is not CompiledLstm
    assert kind(double(weights)) is not CompiledLstm
    assert chooser.steps_by(double(weights)) == "plain"
    with use_processor("amx"):
        assert chooser.steps_by(weights) == "compiled"
    monkeypatch.setenv(compiled.VARIABLE, "none")
    assert kind(weights) is not CompiledLstm
    with use_processor("amx"):
        assert chooser.steps_by(weights) == "plain"


def test_small_layers_are_exact(monkeypatch):
    """Where fewer bytes would gain nothing: none are halved, and the least not rounded, either."""
    weights = random_weights()

    def types(processor="amx"):
        with use_processor(processor):
            dtypes = None, "float16", "bfloat16", "int8"
            return [chooser.compiled_dtype(weights, one) for one in dtypes]

    assert types() == [torch.float32] * 4
    monkeypatch.setattr(chooser.tuning, "MOST_EXACT", 0)
    assert types() == [torch.float32, torch.float32, None, torch.int8]
    assert types("avx512_bf16")[2] == torch.bfloat16
    # In whole numbers of 16 bits, were it larger.
    assert types("avx512_bf16_avx_vnni")[1] == torch.float32
    with use_processor("avx512_bf16_slow"):  # in half precision, were it larger
        assert chooser.compiled_dtype(weights, "bfloat16") == torch.float32
    monkeypatch.setattr(chooser.tuning, "LEAST_HALVED", 0)
    assert types() == [torch.float32, torch.float16, None, torch.int8]
    assert types("avx512_bf16_avx_vnni")[1] == torch.int16
    with use_processor("avx512_bf16_slow"):
        assert chooser.compiled_dtype(weights, "bfloat16") == torch.float16
    assert kind(weights, "bfloat16", in_cpp=True) is CompiledLstm
