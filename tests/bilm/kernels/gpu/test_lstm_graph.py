"""
The frozen LSTM on a GPU that is not there, against the reference. A graph that was recorded repeats
operations on the tensors that they had. PyTorch stands for Triton's interpreter where the kernels
themselves are not in question: it is much faster.
"""

import threading
import time

import pytest
import torch

from elmo_plugin.bilm.kernels import fast, tuning
from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.kernels.gpu import cuda_graph, lstm_fused
from elmo_plugin.bilm.kernels.gpu.lstm_graph import GraphedLstm
from elmo_plugin.bilm.kernels.interface import LstmState
from elmo_plugin.bilm.kernels.reference import lstm_gates
from elmo_plugin.bilm.model.lstm import BiLstm
from tests.cases import first_quick
from tests.emulated_gpu import emulated_gpu

GPU = "cuda:0"
DIM, CELL_SIZE = 5, 9
# Sentences of several lengths, longest first and not, also of none; one alone; many in few shapes.
LENGTHS = [[3, 7, 1, 0, 7], [6], [2, 2, 9], [1, 8, 8, 3, 0, 5, 2], [6]]


def forward_step(products, addends, bias, cell, gated, left, _, __, clip, *___, **____):
    """The Triton kernel's work."""
    sums = products + addends + bias.unsqueeze(1)
    gates, new = lstm_gates(sums.flatten(0, 1).float(), cell.flatten(0, 1), clip)
    gated.copy_(gates.view_as(gated))
    cell.copy_(torch.where(left.unsqueeze(1) > 0, new.view_as(cell), cell))


def output_step(projected, hidden, outputs, left, clip, *_, **__):
    """The Triton kernel's work."""
    is_real, clipped = left.unsqueeze(1) > 0, projected.clamp(-clip, clip)
    hidden.copy_(torch.where(is_real, clipped, hidden))
    outputs.copy_(torch.where(is_real, clipped, 0.0))


KERNELS = {"forward_step": forward_step, "output_step": output_step}


@pytest.fixture
def emulation(monkeypatch):
    with emulated_gpu(monkeypatch) as emulation:
        emulation.run_kernels(monkeypatch, KERNELS)
        yield emulation


def random_lstm(num_layers=2, skips=True, clips=(0.6, 0.3), dtype=None):
    torch.manual_seed(0)
    lstm = BiLstm(
        projection_dim=DIM, cell_size=CELL_SIZE, num_layers=num_layers, cell_clip=clips[0],
        projection_clip=clips[1], use_skip_connections=skips,
    )  # fmt: skip
    for parameter in lstm.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    for layer in lstm.children():
        layer.dtype = dtype
    return lstm.requires_grad_(False)


def batch(lengths, num_layers=2, padding=2, seed=0):
    """Arguments of `BiLstm`; the tokens at padding are no numbers that may be read."""
    torch.manual_seed(seed)
    num_steps = max(lengths) + padding
    tokens = torch.randn(2, len(lengths), num_steps, DIM)
    start = [
        LstmState(
            0.3 * torch.randn(num_layers, len(lengths), DIM),
            0.5 * torch.randn(num_layers, len(lengths), CELL_SIZE),
        )
        for _ in range(2)
    ]
    return tokens[0], torch.tensor(lengths), tuple(start), tokens[1]


def on_gpu(arguments):
    tokens, lengths, start, other = arguments
    states = tuple(one.map(lambda values: values.to(GPU)) for one in start)
    return tokens.to(GPU), lengths.to(GPU), states, other.to(GPU)


def assert_same(found, expected, error=1e-6):
    flat = [[*layers, *end[0], *end[1]] for layers, end in (found, expected)]
    for ours, theirs in zip(*flat, strict=True):
        torch.testing.assert_close(
            ours.cpu(), theirs, atol=error, rtol=error, equal_nan=True, check_dtype=False
        )


def assert_reference(lstm, cases, error=1e-6):
    """What the LSTM gives for each batch, in this order, is what the reference gives on a CPU."""
    with use_backend("reference"):
        expected = [lstm(*arguments) for arguments in cases]
    lstm.to(GPU)
    for arguments, theirs in zip(cases, expected, strict=True):
        assert_same(lstm(*on_gpu(arguments)), theirs, error)


@first_quick(
    ("tuned", "lstm"),
    [
        ({"LEAST_SORTED_ON_GPU": 2, "MOST_ROWS_IN_GRAPH": 3}, {}),
        ({}, {"clips": (None, None)}),
        # A layer of one step at a time.
        ({"INPUT_PRODUCT_ELEMENTS_ON_GPU": 1}, {"num_layers": 1, "clips": (None, 0.2)}),
        ({"LEAST_SORTED_ON_GPU": 2, "STEPS_IN_GRAPH": 3}, {"skips": False}),
    ],
    count=2,
)
def test_layers_and_states_are_the_references(emulation, monkeypatch, tuned, lstm):
    """In the first call, where graphs are recorded, and where they are repeated."""
    for name, value in tuned.items():
        monkeypatch.setattr(tuning, name, value)
    num_layers = lstm.get("num_layers", 2)
    cases = [batch(one, num_layers, seed=seed) for seed, one in enumerate([*LENGTHS, *LENGTHS])]
    assert_reference(random_lstm(**lstm), cases)
    assert {*emulation.launched} == {"forward_step", "output_step"}


@pytest.mark.parametrize("clips", [(0.6, 0.3), (None, None)])
def test_interpreted_kernels(emulation, monkeypatch, clips):
    monkeypatch.setattr(tuning, "BLOCK", 4)
    emulation.run_kernels(monkeypatch)
    assert_reference(random_lstm(1, clips=clips), [batch([1, 3], 1)] * 2)


def test_tokens_of_both_directions_may_be_the_same(emulation):
    cases = [batch(one)[:3] for one in LENGTHS[:2]]
    lstm = random_lstm()
    with use_backend("reference"):
        expected = [lstm(*one) for one in cases]
    lstm.to(GPU)
    for one, theirs in zip(cases, expected, strict=True):
        assert_same(lstm(*on_gpu((*one, one[0]))[:3]), theirs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(emulation, dtype):
    lstm = random_lstm(dtype=dtype)
    assert_reference(lstm, [batch(LENGTHS[0], seed=seed) for seed in range(3)], 0.03)
    assert emulation.launched


def test_nan_stays_in_its_sentence(emulation):
    """Also for what comes next in the same memory, in places that are then padding."""
    lstm = random_lstm()
    wrong, later = batch([2, 3, 4, 1, 2, 5]), batch([2, 3, 4, 1, 2], seed=1)
    wrong[0][5, 1], wrong[2][1].cell[0, 4, 2] = torch.nan, torch.nan
    assert_reference(lstm, [wrong, wrong, later])
    assert lstm(*on_gpu(wrong))[0][1].cpu().isnan().any(dim=2).any(dim=1).tolist() == [
        number > 3 for number in range(6)
    ]


def test_nan_weights_give_nan_and_zeros_at_padding(emulation):
    lstm = random_lstm()
    lstm.layers("backward")[0].state_projection.weight[2, 3] = torch.nan
    cases = [batch([3, 1])] * 3
    assert_reference(lstm, cases)
    layers, _ = lstm(*on_gpu(cases[0]))
    assert layers[0].cpu()[0, :3, DIM:].isnan().any()
    assert not layers[0].cpu()[0, 3:].any()


def test_new_weights_are_used(emulation):
    lstms, arguments = [random_lstm(), random_lstm()], batch([3, 1])
    assert_reference(lstms[0], [arguments] * 2)
    for lstm in lstms:
        with torch.no_grad():
            lstm.layers("forward")[1].input_linearity.weight.mul_(-1)
    with use_backend("reference"):
        expected = lstms[1](*arguments)
    for _ in range(3):
        assert_same(lstms[0](*on_gpu(arguments)), expected)


@pytest.fixture
def recorded(emulation, monkeypatch):
    """The number of sentences in each graph."""
    sizes = []
    record = cuda_graph.record
    monkeypatch.setattr(
        cuda_graph,
        "record",
        lambda run, pool: sizes.append(run.__self__.size) or record(run, pool=pool),
    )
    return sizes


def test_few_shapes_are_recorded(recorded):
    """None in the first call, which may be the only one; then as many as there are sizes."""
    lstm = random_lstm().to(GPU)
    for size in (5, 9, 9, 10, 11, 12, 13, 16, 3, 1):
        lstm(*on_gpu(batch([size % 5 + 1] * size)))
    assert recorded == [12, 16, 3, 1]


def test_sentences_that_have_ended_are_left_out(recorded, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_SORTED_ON_GPU", 2)
    lstm = random_lstm().to(GPU)
    for _ in range(2):
        lstm(*on_gpu(batch([1, 1, 9, 1, 1, 1, 1, 6])))
    assert recorded == [8, 2, 1]


def test_replays_start_few_operators(emulation):
    """No more for more layers; for a step more, a part of what a step of a layer takes."""
    started = []
    for num_layers in (1, 3):
        lstm = random_lstm(num_layers).to(GPU)
        for num_steps in (4, 4, 4, 8):
            arguments = on_gpu(batch([num_steps] * 2, num_layers, padding=0))
            launched, before = len(emulation.launched), len(emulation.started)
            lstm(*arguments)
            started.append(len(emulation.started) - before)
        assert len(emulation.launched) == launched
    assert started[3] - started[2] == started[7] - started[6] == 3
    assert started[6] - started[2] == 2  # more layers to put in order


def test_without_graphs_the_numbers_are_the_same(emulation, monkeypatch, caplog):
    """Here while the second of two sizes is recorded."""
    record, calls = cuda_graph.record, []

    def fails(run, pool):
        calls.append(1)
        replay = record(run, pool=pool)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return replay

    monkeypatch.setattr(cuda_graph, "record", fails)
    assert_reference(random_lstm(), [batch(one) for one in (*LENGTHS, *LENGTHS)])
    assert len(calls) == 2
    assert [one.getMessage() for one in caplog.records] == [
        "CUDA graphs are not used for the LSTM: out of memory"
    ]


# --- on a CPU, as if it were a GPU ---------------------------------------------------------------


class Stream:
    def __init__(self):
        self.waited_for = []

    def wait_stream(self, other):
        self.waited_for.append(other)


@pytest.fixture
def graphed(monkeypatch):
    """`GraphedLstm` on the CPU, its LSTM, and the streams of the program."""

    class Kernel:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            time.sleep(1e-4)  # other threads may run
            return KERNELS[self.name]

    monkeypatch.setattr(lstm_fused, "kernel", Kernel)
    monkeypatch.setattr(cuda_graph, "record", lambda run, pool: run)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    streams = [Stream()]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: streams[-1])
    lstm = random_lstm()
    return GraphedLstm(lstm.plain_weights, None, True), lstm, streams


def test_threads_share_the_memory(graphed):
    run, lstm, _ = graphed
    cases = [batch([seed % 3 + 1, 4], seed=seed) for seed in range(6)]
    with use_backend("reference"):
        expected = [lstm(*one) for one in cases]
    found = {}

    def work(number):
        tokens, lengths, start, others = cases[number]
        found[number] = run([tokens, others], lengths, start)

    threads = [threading.Thread(target=work, args=[number]) for number in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, theirs in enumerate(expected):
        assert_same(found[number], theirs)


def test_a_stream_waits_for_the_one_before(graphed):
    run, _, streams = graphed
    tokens, lengths, start, others = batch([2])
    first, second = Stream(), Stream()
    for stream in (first, first, second, second, first):
        streams.append(stream)
        run([tokens, others], lengths, start)
    assert [first.waited_for, second.waited_for] == [[second], [first]]


def test_outputs_can_be_used_in_training(graphed):
    run, _, _ = graphed
    tokens, lengths, start, others = batch([2, 3])
    with torch.inference_mode():
        run([tokens, others], lengths, start)
    layers, end = run([tokens, others], lengths, start)
    scale = torch.ones((), requires_grad=True)
    (scale * layers[0].sum() + (scale * end[0].cell).sum()).backward()
    assert not layers[0].requires_grad


REFUSED = {
    "it learns": lambda lstm: lstm.requires_grad_(True),
    "int8": lambda lstm: [setattr(one, "dtype", "int8") for one in lstm.children()],
    "two dtypes": lambda lstm: setattr(lstm.layers("forward")[0], "dtype", "bfloat16"),
    "two clips": lambda lstm: setattr(lstm.layers("forward")[0], "cell_clip", 0.1),
    "float64": lambda lstm: lstm.layers("backward")[1].double(),
    "a hook": lambda lstm: lstm.layers("backward")[1].register_forward_hook(lambda *_: None),
    "another layer": lambda lstm: setattr(lstm, "forward_layer_1", torch.nn.Identity()),
}


@pytest.mark.parametrize("reason", [None, *REFUSED])
def test_where_it_runs(graphed, monkeypatch, reason):
    monkeypatch.setattr(lstm_fused, "usable", lambda *_, **__: True)
    _, lstm, _ = graphed
    if reason is not None:
        REFUSED[reason](lstm)
    tokens, lengths, start, _ = batch([2, 3])
    precisions = {getattr(one, "precision", None) for one in lstm.children()}
    weights = lstm.plain_weights
    found = weights and fast.frozen_bilstm([tokens], lengths, start, weights, precisions, True)
    assert (found is None) is (reason is not None)
