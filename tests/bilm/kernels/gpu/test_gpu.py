"""
The biLM on a GPU, fused and plain steps, against the CPU:
`pytest -m gpu tests/bilm/kernels/gpu/test_gpu.py`. It needs PyTorch and h5py, not AllenNLP.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import fast
from elmo_plugin.bilm.kernels.backend import LstmState, use_backend
from elmo_plugin.bilm.kernels.gpu import cuda_graph, lstm_fused
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import BiLstm, LstmCellWithProjection
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from tests.tiny_bilm import BATCHES, OPTIONS, batch_pair, random_bilm, write

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

GPU = torch.device("cuda", 0)
BATCH_SIZES = [9, 9, 7, 3, 1, 1]
TYPES = [
    (torch.float32, torch.float32),
    (torch.float32, torch.bfloat16),
    (torch.float16, torch.float16),
]


@pytest.fixture(params=["plain", "fused"])
def steps(request, monkeypatch):
    """Which steps run; fused ones where they are expected to."""
    launches = []
    if request.param == "plain":
        monkeypatch.setattr(lstm_fused, "works", lambda *_: False)
    else:
        kernel = lstm_fused.kernel
        monkeypatch.setattr(
            lstm_fused, "kernel", lambda name: launches.append(name) or kernel(name)
        )
    yield request.param
    assert bool(launches) is (request.param == "fused")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dtype", "kind"), TYPES)
def test_the_lstm_fused_work(dtype, kind, training):
    if not lstm_fused.covers(dtype, kind, training):
        pytest.skip("the plain steps run")
    if kind == torch.bfloat16 and not torch.cuda.is_bf16_supported():
        pytest.skip("no bfloat16 on this GPU")
    lstm_fused.works.cache_clear()
    assert lstm_fused.works(GPU, dtype, kind, training)


def layer(cell_size, device):
    torch.manual_seed(0)
    cell = LstmCellWithProjection(40, 24, cell_size, 0.5, 0.3)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    inputs = torch.randn(sum(BATCH_SIZES), 40)
    start = torch.randn(9, 24) * 0.2, torch.randn(9, cell_size) * 0.4
    return cell.to(device), (inputs.to(device), BATCH_SIZES, *(one.to(device) for one in start))


# Numbers of tokens in each sentence of a batch, from one sentence to more than a graph takes.
LENGTHS = [[9], [9, 1, 7, 0, 3], [5] * 40, [1 + i % 13 for i in range(700)]]


def lstm_and_batches(cell_size, dtype=None, std=1.0):
    """A frozen LSTM, and its arguments for each of `LENGTHS`."""
    torch.manual_seed(0)
    lstm = BiLstm(
        projection_dim=24, cell_size=cell_size, num_layers=2, cell_clip=0.5, projection_clip=0.3
    ).requires_grad_(False)
    for parameter in lstm.parameters():
        torch.nn.init.normal_(parameter, std=std * parameter.shape[-1] ** -0.5)
    for one in lstm.children():
        one.dtype = dtype
    batches = []
    for lengths in LENGTHS:
        shapes = [(2, len(lengths), size) for size in (24, cell_size, 24, cell_size)]
        states = [0.3 * torch.randn(shape) for shape in shapes]
        start = LstmState(*states[:2]), LstmState(*states[2:])
        batches.append((torch.randn(len(lengths), max(lengths) + 1, 24), lengths, start))
    return lstm, batches


def run(lstm, batch, device):
    tokens, lengths, start = batch
    states = tuple(one.map(lambda values: values.to(device)) for one in start)
    layers, end = lstm(tokens.to(device), torch.tensor(lengths, device=device), states)
    return [one.cpu() for one in (*layers, *end[0], *end[1])]


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
@pytest.mark.parametrize("cell_size", [7, 33, 1040])
def test_a_frozen_lstm(steps, cell_size, dtype, monkeypatch):
    """In the first call, where a graph is recorded, and where it is repeated."""
    recorded = []
    record = cuda_graph.record
    monkeypatch.setattr(
        cuda_graph,
        "record",
        lambda run, **more: recorded.append(record(run, **more)) or recorded[-1],
    )
    lstm, batches = lstm_and_batches(cell_size, dtype)
    with use_backend("reference"):
        expected = [run(lstm, batch, "cpu") for batch in batches]
    lstm.to(GPU)
    error = 2e-5 if dtype is None else 0.05
    for _ in range(3):
        for batch, theirs in zip(batches, expected, strict=True):
            for our, their in zip(run(lstm, batch, GPU), theirs, strict=True):
                torch.testing.assert_close(our, their, atol=error, rtol=error)
    assert (len(recorded) > 4) is (steps == "fused")


def test_int8_runs_a_layer_at_a_time():
    lstm, batches = lstm_and_batches(33, "int8")
    expected = run(lstm, batches[1], "cpu")
    for our, their in zip(run(lstm.to(GPU), batches[1], GPU), expected, strict=True):
        torch.testing.assert_close(our, their, atol=0.05, rtol=0.05)


class TestGraphs:
    """Graphs of a frozen LSTM, which must give what its first call gives, without a graph."""

    @pytest.fixture
    def graphed(self):
        lstm, batches = lstm_and_batches(33)
        lstm.to(GPU)
        first = [run(lstm, batch, GPU) for batch in batches]
        lstm.layers("forward")[0].forget_derived()
        run(lstm, batches[0], GPU)
        return lstm, batches, first

    def assert_same(self, found, expected):
        for our, their in zip(found, expected, strict=True):
            torch.testing.assert_close(our, their, atol=1e-6, rtol=1e-6)

    def test_threads_and_streams(self, graphed):
        lstm, batches, first = graphed

        def work(number):
            with torch.cuda.stream(torch.cuda.Stream()):
                return [run(lstm, batches[number % 4], GPU) for _ in range(10)]

        with ThreadPoolExecutor(8) as pool:
            for number, found in enumerate(pool.map(work, range(8))):
                for one in found:
                    self.assert_same(one, first[number % 4])

    def test_after_a_failure_the_numbers_are_the_same(self, graphed, monkeypatch, caplog):
        lstm, batches, first = graphed
        record, calls = cuda_graph.record, itertools.count(1)

        def fails(work, pool):
            def asks():
                work()
                if torch.cuda.is_current_stream_capturing():
                    torch.ones(1, device=GPU).item()

            return record(asks if next(calls) == 3 else work, pool=pool)

        monkeypatch.setattr(cuda_graph, "record", fails)
        stream = torch.cuda.current_stream()
        for _ in range(2):
            for batch, expected in zip(batches, first, strict=True):
                self.assert_same(run(lstm, batch, GPU), expected)
        assert torch.cuda.current_stream() == stream
        (message,) = (one.getMessage() for one in caplog.records)
        assert message.startswith("CUDA graphs are not used for the LSTM: ")

    def test_new_weights_are_used(self, graphed):
        lstm, batches, _ = graphed
        run(lstm, batches[1], GPU)
        other, _ = lstm_and_batches(33)
        for one in (lstm, other):
            with torch.no_grad():
                one.layers("backward")[1].state_linearity.weight.mul_(-1)
        with use_backend("reference"):
            expected = run(other, batches[1], "cpu")
        for _ in range(3):
            for our, their in zip(run(lstm, batches[1], GPU), expected, strict=True):
                torch.testing.assert_close(our, their, atol=2e-5, rtol=2e-5)

    def test_the_processor_waits_for_nothing(self, graphed):
        """But for the lengths of many sentences."""
        lstm, batches, _ = graphed
        tokens, lengths, start = batches[1]
        states = tuple(one.map(lambda values: values.to(GPU)) for one in start)
        given = tokens.to(GPU), torch.tensor(lengths, device=GPU), states
        for _ in range(2):
            lstm(*given)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            lstm(*given)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("cell_size", [7, 33, 1040])
def test_gradients_of_a_layer(steps, cell_size, dtype, monkeypatch):
    """The library rounds elsewhere in bfloat16, which decides what is clipped in a large layer."""
    monkeypatch.setattr(fast, "trained_format", lambda *_: None)
    results = []
    for device in ("cpu", GPU):
        cell, (inputs, *others) = layer(cell_size, device)
        cell.training_dtype = dtype
        inputs.requires_grad_()
        output, *finals = cell(inputs, *others)
        gradients = torch.autograd.grad(output.square().sum(), [inputs, *cell.parameters()])
        results.append([one.detach().cpu() for one in (output, *finals, *gradients)])
    # bfloat16 moves some values across a clip, which takes or gives their whole gradient: on a CPU,
    # too, its cosine with float64's is 0.9945.
    least = 0.999 if dtype is None else 0.99
    for theirs, ours in zip(*results, strict=True):
        assert functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > least
        if dtype is None:
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def test_a_nan_is_not_clipped_away(steps):
    cell, arguments = layer(33, GPU)
    arguments[-1][4, 5] = torch.nan
    output, _, final_cell = cell(*arguments)
    assert output[4].isnan().all()
    assert final_cell.isnan().any(dim=1).tolist() == [row == 4 for row in range(9)]
    lstm, (_, batch, *_) = lstm_and_batches(33)
    batch[2][0].cell[0, 2, 5] = torch.nan
    for _ in range(3):
        layers = run(lstm.to(GPU), batch, GPU)[1]
        assert layers.isnan().any(dim=2).any(dim=1).tolist() == [row == 2 for row in range(5)]
        assert not layers[2, 7:].any()


def test_the_processor_waits_for_no_step(steps):
    cell, arguments = layer(33, GPU)
    cell(*arguments)  # weights are prepared, kernels are compiled
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        cell(*arguments)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
@pytest.mark.parametrize("state", ["carry", "reset", "primed"])
def test_bilm(steps, state, dtype):
    results = []
    for device in ("cpu", GPU):
        bilm = random_bilm(dtype=dtype).requires_grad_(False)
        bilm.state = state
        bilm.to(device)
        layers = []
        for batch in BATCHES:
            output = bilm(batch_to_ids(batch).to(device))
            layers += [one.cpu() for one in (*output["activations"], output["mask"].float())]
        results.append(layers)
    error = 1e-5 if dtype is None else 0.05
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=error, rtol=error)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_gradients_of_pretraining(steps, dtype):
    results = []
    for device in ("cpu", GPU):
        torch.manual_seed(0)
        softmax = WordSoftmax(50, OPTIONS.projection_dim, 10)
        model = LanguageModel(random_bilm(), softmax, 0.0, dtype).to(device).train()
        states = None
        for seed in range(2):
            torch.manual_seed(seed)
            output = model(batch_pair(), states)
            states = output.states
            output.loss.backward()
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        results.append([one.detach().cpu() for one in (output.loss, *gradients)])
    for theirs, ours in zip(*results, strict=True):
        error = 1e-4 if dtype is None else 0.1 * float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, atol=error, rtol=0.01)


def test_embedder(steps, tmp_path):
    files = write(tmp_path)
    here, there = (ElmoEmbedder(*files, cuda_device=device) for device in (-1, 0))
    for batch in BATCHES:
        for ours, theirs in zip(there.embed_batch(batch), here.embed_batch(batch), strict=True):
            assert ours.shape == theirs.shape
            assert abs(ours - theirs).max() < 1e-5
