"""
The biLM on a GPU, fused and plain steps, against the CPU:
`pytest -m gpu tests/bilm/kernels/test_gpu.py`. It needs PyTorch and h5py, not AllenNLP.
"""

import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import fast, lstm_fused
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection
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


@pytest.mark.parametrize("dtype", [None, "bfloat16", "int8"])
@pytest.mark.parametrize("cell_size", [7, 33, 1040])
def test_a_frozen_layer(steps, cell_size, dtype):
    outputs = []
    for device in ("cpu", GPU):
        cell, arguments = layer(cell_size, device)
        cell.requires_grad_(False)
        cell.dtype = dtype
        outputs.append([one.cpu() for one in cell(*arguments)])
    error = 2e-5 if dtype is None else 0.05
    for theirs, ours in zip(*outputs, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=error, rtol=error)


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
    for training in (False, True):
        cell, arguments = layer(33, GPU)
        cell.requires_grad_(training)
        arguments[-1][4, 5] = torch.nan
        output, _, final_cell = cell(*arguments)
        assert output[4].isnan().all()
        assert final_cell.isnan().any(dim=1).tolist() == [row == 4 for row in range(9)]


def test_the_processor_waits_for_no_step(steps):
    cell, arguments = layer(33, GPU)
    for training in (False, True):
        cell.requires_grad_(training)
        cell(*arguments)  # weights are prepared, kernels are compiled
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            cell(*arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [None, "bfloat16", "int8"])
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
