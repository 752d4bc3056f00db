"""
Everything that runs the biLM, on a GPU that is not there: nothing mixes its tensors with the CPU's,
and the numbers are the CPU's. `test_gpu.py` asks a real one.
"""

import io
import itertools

import h5py
import pytest
import torch

from elmo_plugin.bilm.extraction.batches import Sentence
from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
from elmo_plugin.bilm.kernels import token_layer, tuning
from elmo_plugin.bilm.kernels.gpu import lstm_directions, lstm_fused
from elmo_plugin.bilm.model import bilm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.use.elmo import Elmo
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from elmo_plugin.bilm.use.neighbours import nearest_neighbours
from tests.cases import first_quick
from tests.emulated_gpu import GpuTensor, emulated_gpu
from tests.tiny_bilm import BATCHES, OPTIONS, batch_pair, random_bilm, write

GPU = "cuda:0"

STEPS = ("plain", "fused")
PLAIN = pytest.mark.parametrize("emulation", STEPS[:1], indirect=True)


def fused_works(monkeypatch, on_gpu):
    works = lstm_fused.works
    monkeypatch.setattr(
        lstm_fused,
        "works",
        lambda device, *types: on_gpu if device.type == "cuda" else works(device, *types),
    )


@pytest.fixture(params=STEPS)
def emulation(request, monkeypatch):
    """Fused steps run by Triton's interpreter."""
    monkeypatch.setattr(tuning, "BLOCK", 16)
    monkeypatch.setattr(bilm, "WARM_UP_TEXT", "The rain had stopped before noon .")
    with emulated_gpu(monkeypatch) as emulation:
        if request.param == "fused":
            emulation.run_kernels(monkeypatch)
        else:
            fused_works(monkeypatch, False)
        yield emulation
    assert bool(emulation.launched) is (request.param == "fused")


def assert_same(work, rounding=1e-6):
    """What `work` gives for a device."""
    expected, found = list(work("cpu")), list(work(GPU))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), atol=rounding, rtol=1e-5)


def test_what_a_gpu_does_not_take_is_an_error(monkeypatch):
    with emulated_gpu(monkeypatch) as emulation:
        here, there = torch.ones(2, 3), torch.ones(2, 3, device=GPU)
        assert there.is_cuda
        assert isinstance(there, GpuTensor)
        for mixed in (
            lambda: here + there,
            lambda: there.mul_(here),
            lambda: torch.cat([here, there]),
            lambda: here[torch.tensor([0], device=GPU)],
            lambda: there.index_put_((torch.tensor([0, 1]),), here),
            lambda: there.index_copy_(0, torch.tensor([0, 1]), there),
            lambda: torch.nn.functional.linear(there, here),
        ):
            with pytest.raises(RuntimeError, match="mixes"):
                mixed()
        assert (there + 1)[torch.tensor([0])].tolist() == [[2.0, 2.0, 2.0]]
        assert (there * torch.tensor(3.0)).is_cuda
        emulation.waits.clear()
        there.mul_(2).sum()
        assert emulation.waits == []
        assert float(there.sum()) == 12
        assert emulation.waits == ["aten._local_scalar_dense"]


@first_quick(
    ("state", "dtype"), [("carry", None), ("reset", "float16"), ("primed", "bfloat16")], count=2
)
def test_bilm(emulation, state, dtype):
    def work(device):
        bilm = random_bilm(dtype=dtype).requires_grad_(False)
        bilm.state = state
        bilm.to(device)
        for batch in BATCHES[:2]:
            output = bilm(batch_to_ids(batch).to(device))
            yield from (*output["activations"], output["mask"])

    assert_same(work, 1e-6 if dtype is None else 0.05)


@first_quick("emulation", STEPS, indirect=True)
def test_the_processor_waits_for_no_step(emulation):
    """As often for 30 tokens as for 3."""
    bilm = random_bilm().requires_grad_(False).to(GPU)
    bilm(batch_to_ids([["a"]]).to(GPU))
    waits = []
    for num_tokens in (3, 30):
        before = len(emulation.waits)
        bilm(batch_to_ids([["a", "b", "c"] * (num_tokens // 3)]).to(GPU))
        waits.append(emulation.waits[before:])
    assert waits[0] == waits[1]


@PLAIN
@pytest.mark.parametrize(("few", "sorts"), [(2, 1), (128, 0)])
def test_repeated_tokens_are_sought_where_they_are_many(emulation, monkeypatch, few, sorts):
    monkeypatch.setattr(tuning, "FEW_TOKENS_ON_GPU", few)

    def work(device):
        bilm = random_bilm().requires_grad_(False).to(device)
        yield from bilm(batch_to_ids([["a", "b", "a"]]).to(device))["activations"]

    assert_same(work)
    assert emulation.waits.count("aten._unique2") == sorts


@PLAIN
@first_quick(
    "arguments",
    [
        {"do_layer_norm": True, "requires_grad": True},
        {"cache": "memory", "state": "reset"},
        {},
        {"keep_sentence_boundaries": True, "state": "primed"},
        {"vocab_to_cache": ["<pad>", "The", "cat", "sat"]},
    ],
)
def test_elmo(emulation, arguments, tmp_path):
    files = write(tmp_path)

    def work(device):
        elmo = Elmo(*files, 2, dropout=0.0, **arguments).to(device)
        for batch in BATCHES[:2]:
            ids = batch_to_ids(batch).to(device)
            output = elmo(ids, (ids > 0).any(dim=-1).long())
            yield from (*output["elmo_representations"], output["mask"])

    assert_same(work)


@PLAIN
def test_embedder_and_extraction(emulation, tmp_path):
    files = write(tmp_path)

    some = BATCHES[:2]

    def work(device):
        embedder = ElmoEmbedder(*files, cuda_device=0 if device == GPU else -1)
        for batch in some:
            yield from map(torch.from_numpy, embedder.embed_batch(batch))
        lines = [" ".join(sentence) for batch in some for sentence in batch]
        embedder.embed_file(io.StringIO("\n".join(lines) + "\n"), tmp_path / "layers.hdf5")
        with h5py.File(tmp_path / "layers.hdf5") as file:
            yield from (torch.from_numpy(file[str(line)][()]) for line in range(len(lines)))

    assert_same(work)


@PLAIN
@pytest.mark.parametrize("num_tokens", [3, 5])
def test_many_tokens_at_once(emulation, num_tokens, monkeypatch):
    """A few pieces would do on a CPU; on a GPU each would cost the same time."""
    monkeypatch.setattr(tuning, "TOKENS_AT_ONCE", 2)
    monkeypatch.setattr(tuning, "TOKENS_AT_ONCE_ON_GPU", 5)
    tokens = ["The", "naïve", "." * 60, "moon", "a"][:num_tokens]
    pieces = []
    encode = token_layer.encode_parts
    monkeypatch.setattr(
        token_layer,
        "encode_parts",
        lambda ids, *more: pieces.append(len(ids)) or encode(ids, *more),
    )

    def work(device):
        pieces.clear()
        yield random_bilm().to(device).token_vectors(tokens)

    assert_same(work)
    assert pieces == [5, 2][: 1 + num_tokens // 5]  # both boundaries are tokens, too


@PLAIN
def test_chunks_rows_vocabularies_and_neighbours(emulation):
    def work(device):
        bilm = random_bilm().requires_grad_(False).to(device)
        yield from layers_in_chunks(bilm, ["The", "cat", "sat", "at", "the", "moon"], 3)
        for rows in ([2, 0], [1]):
            ids = batch_to_ids(BATCHES[0][: len(rows)]).to(device)
            output = bilm.run(ids, bilm.start_states(rows))
            bilm.keep_states(rows, *output.end)
            yield from output.layers
        yield bilm.token_vectors(["The", "cat"])
        bilm.state = "reset"
        sentences = [Sentence(" ".join(one), one) for one in BATCHES[2]]
        for layer in nearest_neighbours(bilm, ["The", "cat"], 1, sentences, count=1):
            yield torch.tensor([one.similarity for one in layer])

    assert_same(work, 2e-5)


@first_quick("dtype", [None, "bfloat16"])
@first_quick("train", [True, False])
def test_losses_of_pretraining(emulation, dtype, train):
    """Gradients need a real GPU, but for those below."""

    def work(device):
        torch.manual_seed(0)
        softmax = WordSoftmax(50, OPTIONS.projection_dim, 10)
        model = LanguageModel(random_bilm(), softmax, 0.0, dtype).to(device).train(train)
        states = None
        for seed in range(2):
            torch.manual_seed(seed)
            batch = batch_pair()
            # From text as it comes, or moved before.
            output = model(batch if seed else batch.to(torch.device(device)), states)
            states = output.states
            yield from (output.loss, *states[0], *states[1])

    assert_same(work, 1e-6 if dtype is None else 0.01)


class Context:
    """What autograd gives to a function; it does not start without a GPU's driver."""

    needs_input_grad = [True] * 13

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors):
        pass


@pytest.mark.parametrize("emulation", STEPS[1:], indirect=True)
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_gradients_of_the_recurrence(emulation, dtype):
    def work(device):
        torch.manual_seed(0)
        shapes = (8, 4), (24, 4), (24, 3), (24,), (3, 6), (4, 3), (4, 6)
        tensors = [torch.randn(2, *shape).to(device) for shape in shapes]
        layer, context = lstm_directions._Layer, Context()
        with torch.no_grad():
            outputs = layer.forward(context, *tensors, (4, 3, 1), (0.5, 0.3), dtype)
            yield from outputs
            yield from layer.backward(context, torch.ones_like(outputs[0]), None, None)[:5]

    assert_same(work, 2e-6 if dtype is None else 0.1)


@pytest.mark.parametrize(("most_rows", "products"), [(10, 1), (4, 3)])
def test_input_products_of_many_steps(most_rows, products, monkeypatch):
    fused_works(monkeypatch, False)
    monkeypatch.setattr(tuning, "INPUT_PRODUCT_ELEMENTS", 24)
    monkeypatch.setattr(tuning, "INPUT_PRODUCT_ELEMENTS_ON_GPU", 24 * most_rows)
    with emulated_gpu(monkeypatch) as emulation:
        cell = LstmCellWithProjection(4, 3, 6).requires_grad_(False).to(GPU)
        inputs = torch.zeros(10, 4, device=GPU)
        cell(inputs, [2] * 5, inputs[:2, :3], torch.zeros(2, 6, device=GPU))
        assert emulation.started.count("aten.addmm") == products


@pytest.mark.parametrize(
    ("fused", "dtype", "expected"),
    [
        (False, None, [11]),
        (False, "bfloat16", [15]),
        # Two products, a kernel and the clip; of a gradient, two products and two kernels.
        (True, None, [11, 4, 4]),
        (True, "bfloat16", [15, 4, 4]),
    ],
)
def test_what_a_step_starts(fused, dtype, expected, monkeypatch):
    """A step more: frozen, in training, and its gradient."""
    fused_works(monkeypatch, fused)
    with emulated_gpu(monkeypatch) as emulation:

        class Kernel:
            def __init__(self, name):
                self.name = name

            def __getitem__(self, grid):
                return lambda *_, **__: emulation.started.append(self.name)

        monkeypatch.setattr(lstm_fused, "kernel", Kernel)
        assert operators_of_a_step(emulation, dtype, trains=fused) == expected


def operators_of_a_step(emulation, dtype, trains):
    cell = LstmCellWithProjection(4, 3, 6).to(GPU)
    cell.dtype = dtype
    start = torch.zeros(2, 3, device=GPU), torch.zeros(2, 6, device=GPU)
    weights = [one.detach()[None] for one in cell.weights.tensors]

    @torch.no_grad()
    def started(num_steps):
        inputs, sizes = torch.zeros(2 * num_steps, 4, device=GPU), (2,) * num_steps
        layer, context = lstm_directions._Layer, Context()
        emulation.started.clear()
        cell(inputs, sizes, *start)
        yield len(emulation.started)
        if trains:
            state = (one[None] for one in start)
            outputs, _, _ = layer.forward(
                context, inputs[None], *weights, *state, sizes, (3.0, 3.0), dtype
            )
            yield len(emulation.started)
            layer.backward(context, torch.ones_like(outputs), None, None)
            yield len(emulation.started)

    list(started(1))  # weights are prepared
    few, many = ([0, *started(num_steps)] for num_steps in (4, 5))
    more = [one - other for one, other in zip(many, few, strict=True)]
    return [other - one for one, other in itertools.pairwise(more)]
