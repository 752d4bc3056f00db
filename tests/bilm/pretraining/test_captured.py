"""
Gradients from fixed memory, as a CUDA graph computes them, beside the plain ones; and the embedded
biLM's recipe. Triton's interpreter runs the kernels, and nothing is recorded: a repetition runs.
"""

import itertools
import random
import re
from pathlib import Path

import numpy
import pytest
import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels import fast, tuning
from elmo_plugin.bilm.kernels.gpu import cuda_graph
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining import captured
from elmo_plugin.bilm.pretraining.config import LoopSettings, make_model_arguments, make_settings
from elmo_plugin.bilm.pretraining.language_model import LanguageModel, make_language_model
from elmo_plugin.bilm.pretraining.loader import BatchPair, StreamLoader
from elmo_plugin.bilm.pretraining.optimization import WarmupCosine
from elmo_plugin.bilm.pretraining.processes import Processes
from elmo_plugin.bilm.pretraining.softmax import Negatives, WordSoftmax
from elmo_plugin.bilm.pretraining.step import Stepper
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary, word_counts
from elmo_plugin.commands.pretrain import read_config
from tests.cases import first_quick
from tests.interpreted_kernels import interpret

FIXTURE = Path(__file__).parents[2] / "fixtures/recipe/updates.npz"
CPU = torch.device("cpu")
NAMES = ("inputs", "targets", "kept", "masks", "candidates")
OPTIONS = ElmoOptions(
    projection_dim=6, cell_size=9, num_layers=2, char_embedding_dim=4,
    filters=((1, 4), (2, 4), (4, 8)), num_highways=1,
)  # fmt: skip


def capture(monkeypatch):
    """From now on, steps are as on a GPU."""
    monkeypatch.setattr(cuda_graph, "record", lambda run, warm_up: run)
    monkeypatch.setattr(tuning, "TOKENS_AT_ONCE_ON_GPU", 4)
    interpret(monkeypatch)


@pytest.fixture
def text(tmp_path):
    rng = random.Random(0)
    words = ["a", "bc", "def", "ghij", "é" * 30, "klmnopq", "r" * 60, *(f"w{i}" for i in range(9))]
    lines = (" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(60))
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return StreamLoader([tmp_path / "text.txt"], 3, num_steps=4), WordVocabulary(
        [*SPECIAL_WORDS, *words]
    )


SOFTMAXES = {
    "log-uniform": {"num_samples": 5},
    "sparse": {"num_samples": 5, "sparse": True},
    "counts": {"num_samples": 6, "count_exponent": 0.8, "num_frequent": 4},
}


ACCUMULATED = {
    "optimizer": {"type": "sgd", "lr": 1.0},
    "frozen_steps": 1,
    "num_gradient_accumulation_steps": 2,
}
# Its updates are in the graph too, with rates of their own.
UPDATED = {
    "optimizer": {
        "type": "fused_adamw",
        "lr": 0.01,
        "eps": 0.1,  # small gradients stay small
        "parameter_groups": [[["bias"], {"lr": 0.1, "weight_decay": 0.0}]],
    },
    "learning_rate_scheduler": WarmupCosine(warmup_steps=2),
    "frozen_steps": 2,
}


def train(
    files, words, softmax, ahead=1, device=CPU, dtype=None, captures=True, settings=ACCUMULATED
):
    """Steps of two batches: results, weights, numbers of distinct tokens, and the stepper."""
    settings = LoopSettings(**settings, dropout_free_steps=9, reset_probability=0.3, grad_norm=1.0)
    counts = torch.tensor(word_counts(files.paths, words))
    torch.manual_seed(0)
    softmax = WordSoftmax(len(words), OPTIONS.projection_dim, counts=counts, **SOFTMAXES[softmax])
    model = LanguageModel(BiLm(OPTIONS), softmax, dtype=dtype).to(device)
    stepper = Stepper(model, settings, Processes(device))
    stepper.num_rows, stepper.own_rows = files.batch_size, range(files.batch_size)
    stepper._steps_ahead, stepper.captures = ahead, captures
    pairs = files.pairs(words, endless=True)
    found, sizes = [], set()
    together = settings.num_gradient_accumulation_steps
    for number in range(1, last := 8 // together + 1):
        some = [next(pairs) for _ in range(together)]
        sizes |= {len(one.characters) for one in some}
        results, _ = stepper.step(some, number, last, [], wait=number == last - 1)
        found += results
    return found, model.weights(), sizes, stepper


@first_quick(
    ("softmax", "settings"),
    [
        ("counts", UPDATED), ("log-uniform", ACCUMULATED), ("counts", ACCUMULATED),
        ("log-uniform", UPDATED), ("sparse", ACCUMULATED),
    ],
    count=2,
)  # fmt: skip
def test_captured_steps_are_the_plain_ones(monkeypatch, text, softmax, settings):
    """With few and with many distinct tokens, long ones too, and the biLM frozen at the start."""
    results, weights, sizes, _ = train(*text, softmax, settings=settings)
    assert len(sizes) > 2
    capture(monkeypatch)
    begun = []
    begin = captured.CapturedStep._record
    monkeypatch.setattr(
        captured.CapturedStep, "_record", lambda *given: begun.append(1) or begin(*given)
    )
    found = train(*text, softmax, ahead=3, settings=settings)
    assert 2 <= len(begun) < 8
    assert (found[3].graph.update is not None) == (settings is UPDATED)
    assert_same(found, (results, weights))


def assert_same(found, expected, error=1e-6):
    for ours, plain in zip(found[0], expected[0], strict=True):
        assert (ours.steps, ours.num_batches) == (plain.steps, plain.num_batches)
        assert ours[1:3] == pytest.approx(plain[1:3], rel=error)
        assert ours.norm == pytest.approx(plain.norm, rel=10 * error)
    for name, tensor in expected[1].items():
        torch.testing.assert_close(found[1][name], tensor, atol=error, rtol=0, msg=name)


@pytest.mark.parametrize("settings", [ACCUMULATED, UPDATED])
def test_without_memory_for_a_graph_the_steps_are_the_same(monkeypatch, text, settings):
    """
    Here for the second batch of a step, whose gradients are added to those of the first; and for
    updates, which are then taken after the graph.
    """
    plain = train(*text, "log-uniform", settings=settings)
    capture(monkeypatch)
    calls = itertools.count(1)

    def fails(run, warm_up):
        warm_up()
        if next(calls) == 2:
            raise RuntimeError("out of memory")
        return run

    monkeypatch.setattr(cuda_graph, "record", fails)
    found = train(*text, "log-uniform", settings=settings)
    assert found[3].captures == (settings is UPDATED)
    assert not found[3].captures_updates
    assert_same(found, plain)


def test_a_loss_that_is_no_number_names_its_own_step_and_lines(monkeypatch, text):
    """Python has given the GPU more steps before it hears of it."""
    files, words = text
    torch.manual_seed(0)
    model = LanguageModel(BiLm(OPTIONS), WordSoftmax(len(words), OPTIONS.projection_dim, 5))
    settings = LoopSettings({"type": "sgd", "lr": 0.0})
    stepper = Stepper(model, settings, Processes(CPU), files.paths)
    stepper._steps_ahead = 9
    pairs = list(itertools.islice(files.pairs(words, endless=True), 4))
    for number in (1, 2, 3):
        if number == 2:
            with torch.no_grad():
                model.softmax.weight[0, 0] = torch.nan
        assert stepper.step(pairs[number - 1 : number], number, 9, [1.0], wait=False) == ([], [0.0])
    with pytest.raises(
        ValueError, match=r"loss is nan at step 2, .* from \S*text\.txt:\d+"
    ) as error:
        stepper.step(pairs[3:], 4, 9, [0.0])
    lines = {line for one in pairs[1].sources for _, line in one.tolist()}
    assert {int(line) for line in re.findall(r"text\.txt:(\d+)", str(error.value))} == lines


def test_a_frozen_token_layer_asks_the_device_for_nothing(monkeypatch, text):
    """A CUDA graph cannot be recorded of what waits for a number."""
    files, words = text
    bilm = BiLm(OPTIONS).double().requires_grad_(False)  # float32 has a cache on a CPU
    characters = next(files.pairs(words)).characters
    expected = bilm.char_cnn(characters)
    monkeypatch.setattr(fast, "distinct_rows", lambda *_: pytest.fail("asked"))
    vectors = bilm.char_cnn(characters, [characters.shape[1]])
    torch.testing.assert_close(vectors, expected)


@torch.no_grad()
def test_evaluation_takes_both_directions_together(monkeypatch, text):
    """In float32 and without dropout."""
    files, words = text
    softmax = WordSoftmax(len(words), OPTIONS.projection_dim)
    model = LanguageModel(BiLm(OPTIONS), softmax, 0.5, "bfloat16").eval()
    pair = next(files.pairs(words))
    expected = model(pair).loss
    launched = interpret(monkeypatch)
    torch.testing.assert_close(model(pair).loss, expected, atol=1e-6, rtol=1e-6)
    assert {*launched} == {"forward_step"}


# --- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestOnAGpu:
    """`pytest -m gpu tests/bilm/pretraining/test_captured.py`; graphs are recorded."""

    GPU = torch.device("cuda", 0)

    @pytest.mark.parametrize("dtype", [None, "bfloat16"])
    @pytest.mark.parametrize(
        ("softmax", "settings"), [*((one, ACCUMULATED) for one in SOFTMAXES), ("counts", UPDATED)]
    )
    def test_recorded_steps_are_the_plain_ones(self, text, softmax, settings, dtype):
        given = {"device": self.GPU, "dtype": dtype, "settings": settings}
        plain = train(*text, softmax, **given, captures=False)
        found = train(*text, softmax, **given, ahead=3)
        assert found[3].captures
        assert found[3].captures_updates == (settings is UPDATED)
        assert found[3].graph is not None
        assert_same(found, plain, 1e-5 if dtype is None else 1e-2)

    def test_after_a_failure_the_steps_are_the_same(self, monkeypatch, text):
        """Here while a graph is recorded, with dropout, whose generator takes part in it."""
        plain = train(*text, "log-uniform", device=self.GPU, captures=False)
        record, calls = cuda_graph.record, itertools.count(1)

        def fails(run, warm_up):
            def asks():
                run()
                if torch.cuda.is_current_stream_capturing():
                    torch.ones(1, device=self.GPU).item()

            return record(asks if next(calls) == 3 else run, warm_up)

        monkeypatch.setattr(cuda_graph, "record", fails)
        found = train(*text, "log-uniform", device=self.GPU)
        assert not found[3].captures
        assert_same(found, plain, 1e-5)

    def test_the_processor_waits_for_no_step(self, text):
        files, words = text
        stepper = train(files, words, "counts", ahead=9, device=self.GPU)[3]
        pair = next(files.pairs(words))
        for number in (5, 6):
            stepper.step([pair], number, 9, [])
        torch.cuda.set_sync_debug_mode("error")
        try:
            stepper.step([pair], 7, 9, [], wait=False)
        finally:
            torch.cuda.set_sync_debug_mode("default")


# --- the recipe of the embedded biLM -------------------------------------------------------------


@pytest.fixture
def recipe(repository, monkeypatch):
    """Its config, with sizes of the fixture."""
    for name in ("TRAIN_PATH", "HELDOUT_PATH", "VOCAB_PATH"):
        monkeypatch.setenv(f"BIDIRECTIONAL_LM_{name}", "")
    config = read_config(str(repository / "results/embedded_bilm/bilm.jsonnet"))
    config["model"]["options"] = options_dict(OPTIONS)
    config["model"] |= {"dropout": 0.1, "dropout_free_steps": 0, "dtype": None}
    config["model"]["softmax"] |= {"num_samples": 12, "num_frequent": 9}
    # Rates of 0.001 to 0.004.
    config["trainer"]["optimizer"]["lr"] = 0.004
    config["trainer"]["learning_rate_scheduler"]["warmup_steps"] = 4
    return config


@pytest.mark.parametrize("as_on_a_gpu", [False, True])
def test_updates_of_the_recipe_are_those_that_made_the_embedded_bilm(
    recipe, monkeypatch, as_on_a_gpu
):
    """
    The fixture has four updates of the program that trained it (`experiments/gpu_pretraining`,
    since removed), in float32 by Triton's interpreter, and what it drew at random.
    """
    if as_on_a_gpu:
        capture(monkeypatch)
    stored = dict(numpy.load(FIXTURE))
    words = WordVocabulary([*SPECIAL_WORDS, *(f"w{i}x{'y' * (i % 7)}é" for i in range(37))])
    arguments = make_model_arguments(recipe)
    model = make_language_model(words, **arguments, counts=torch.tensor(stored["counts"]))
    biases = torch.from_numpy(stored["before/softmax.bias"])
    torch.testing.assert_close(model.softmax.bias.detach(), biases)
    model.load_state_dict(
        {name: torch.from_numpy(stored[f"before/{name}"]) for name in model.state_dict()}
    )
    stepper = Stepper(model, make_settings(recipe), Processes(CPU))
    stepper.num_rows, stepper.own_rows = 3, range(3)
    monkeypatch.setattr(model.softmax.sampler, "word_ids", lambda draws: draws)
    characters = batch_to_ids([words.words])[0]
    for step in range(4):
        drawn = {name: torch.from_numpy(stored[f"{step}/{name}"]) for name in NAMES}
        # The first axis has the layers, and then the top output; the second the directions.
        masks = (
            list(drawn["masks"])
            if as_on_a_gpu
            else list(drawn["masks"].transpose(0, 1).flatten(0, 1).flatten(1, 2))
        )
        candidates = Negatives(drawn["candidates"].long(), 12)
        kept = drawn["kept"].float()
        monkeypatch.setattr(model.softmax, "draw", lambda seed, one=candidates: (one, one))
        monkeypatch.setattr(torch, "rand", lambda *_, **__: kept)  # noqa: B023
        monkeypatch.setattr(
            torch.nn.functional,
            "dropout",
            lambda x, p, training=True: x * masks.pop(0).view_as(x) / (1 - p),  # noqa: B023
        )
        types, places = drawn["inputs"].unique(return_inverse=True)
        by_length = (characters[types.long()] != 261).sum(dim=1).argsort()
        pair = BatchPair(
            characters[types.long()[by_length]],
            by_length.argsort()[places],
            drawn["targets"].long(),
        )
        (found,), _ = stepper.step([pair], step + 1, 1000, [])
        assert masks == []
        # The first update makes the optimizer's state.
        assert bool(stepper.graph and stepper.graph.update) is (as_on_a_gpu and step > 0)
        assert found.loss == pytest.approx(float(stored[f"{step}/loss"]), rel=1e-6)
        assert found.norm == pytest.approx(float(stored[f"{step}/norm"]), rel=1e-5)
    for name, tensor in model.state_dict().items():
        after = torch.from_numpy(stored[f"after/{name}"])
        torch.testing.assert_close(tensor, after, atol=5e-7, rtol=2e-7, msg=name)
        assert not torch.equal(tensor, torch.from_numpy(stored[f"before/{name}"]))
