"""
`experiments/gpu_pretraining`: its kernels run in Triton's interpreter on the CPU, beside the
package's own language model.
"""

import math
import sys
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import DIRECTIONS
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.training.evaluation import sum_of_losses
from elmo_plugin.bilm.training.export import (
    OPTIONS_FILE,
    SOFTMAX_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
)
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.softmax import WordSoftmax, load_softmax
from elmo_plugin.bilm.training.streams import BatchPair, StreamBatch, StreamPosition, Text
from elmo_plugin.bilm.training.vocabulary import SPECIAL_WORDS, WordVocabulary, find_text_files
from experiments.gpu_pretraining import __main__ as program
from experiments.gpu_pretraining import kernels, model, trainer
from experiments.gpu_pretraining.model import GpuLanguageModel
from experiments.gpu_pretraining.streams import Streams, character_table, read_corpus
from experiments.gpu_pretraining.trainer import CandidateSampler, Trainer
from tests.no_gpu import CompiledOnly, Driver

OPTIONS = ElmoOptions(
    projection_dim=8,
    cell_size=12,
    num_layers=2,
    char_embedding_dim=16,
    filters=((1, 32), (2, 32), (3, 64), (6, 128)),
    num_highways=1,
)
WORDS = WordVocabulary([*SPECIAL_WORDS, *(f"w{i}x{'y' * (i % 7)}é" for i in range(57))])


@pytest.fixture
def interpreted(monkeypatch):
    """The kernels run on the CPU."""
    pytest.importorskip("triton", reason="no Triton: PyTorch has it where it has CUDA")
    from triton import language as tl
    from triton.runtime.interpreter import InterpretedFunction

    # Triton would compile these; as `InterpretedFunction` they would leave its language changed.
    for name, combine in (("max", "_elementwise_max"), ("sum", "_sum_combine")):
        reduced_by = getattr(tl.standard, combine)
        monkeypatch.setattr(tl, name, lambda x, axis, by=reduced_by: tl.reduce(x, axis, by))
    monkeypatch.setattr(model, "kernel", lambda name: InterpretedFunction(getattr(kernels, name)))


def random_ids(num_sentences=40):
    ids = []
    for number in range(num_sentences):
        ids += [*torch.randint(3, len(WORDS), (number % 6 + 1,)).tolist(), WORDS.ids["</S>"]]
    return torch.tensor(ids)


# --- the model ---------------------------------------------------------------------------------


def make_trainer(options):
    """Its LSTM weights are large enough for the clips to be reached."""
    torch.manual_seed(0)
    gpu_model = GpuLanguageModel(options, len(WORDS), dtype=torch.float32)
    with torch.no_grad():
        gpu_model.softmax.bias.normal_()
        for layer in gpu_model.lstm_layers:
            for weight in (layer.input_weight, layer.state_weight, layer.projection):
                weight.mul_(2.5)
    ids = random_ids()
    streams = Streams(ids, WORDS, batch_size=3, num_steps=4)
    counts = torch.bincount(ids, minlength=len(WORDS))
    return Trainer(gpu_model, character_table(WORDS.words, 36), streams, counts)


def gradients(gpu_model, language_model):
    """The name of each parameter, its gradient in the model for the GPU and in the other."""
    bilm = language_model.bilm
    for part, other in (
        (gpu_model.char_cnn, bilm.char_cnn),
        (gpu_model.softmax, language_model.softmax),
    ):
        for name, parameter in other.named_parameters():
            yield name, part.get_parameter(name).grad, parameter.grad
    for index, layer in enumerate(gpu_model.lstm_layers):
        for number, direction in enumerate(DIRECTIONS):
            weights = model._weights(bilm.lstm.layers(direction)[index])
            for (name, stacked), weight in zip(layer.named_parameters(), weights, strict=True):
                yield f"{direction} {index} {name}", stacked.grad[number], weight.grad


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell_clip": 0.8, "projection_clip": 0.5},
        {"cell_clip": None, "projection_clip": None, "use_skip_connections": False},
        {"num_highways": 2, "activation": "tanh", "projection_dim": 30},
    ],
    ids=["embedded", "low clips", "no clips", "other token layer"],
)
def test_loss_and_gradients_are_those_of_the_language_model(interpreted, monkeypatch, changes):
    monkeypatch.setattr(trainer, "RESET_PROBABILITY", 0.0)
    monkeypatch.setattr(trainer, "MAX_GRADIENT_NORM", 1e9)
    options = replace(OPTIONS, **changes)
    tiny = make_trainer(options)
    softmax = WordSoftmax(len(WORDS), options.projection_dim)
    softmax.load_state_dict(tiny.model.softmax.state_dict())
    bilm = tiny.model.to_bilm()
    language_model = LanguageModel(bilm, softmax, dropout=0.0)
    characters = batch_to_ids([WORDS.words])[0]
    states = None
    for _ in range(2):  # the learning rate is zero; the second update starts with the states
        tiny.step()
        batches = [
            StreamBatch(characters[inputs.t().long()], targets.t().long(), StreamPosition(), [])
            for inputs, targets in zip(tiny._inputs, tiny._targets)
        ]
        language_model.zero_grad()
        expected = language_model(BatchPair(*batches), states)
        expected.loss.backward()
        states = expected.states
        assert tiny.loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)
        for name, found, gradient in gradients(tiny.model, language_model):
            error = (found - gradient).abs().max() / gradient.abs().max()
            assert error < 1e-4, name
    cells = torch.stack([state.cell for state in states])
    hidden = torch.stack([state.hidden for state in states])
    if options.cell_clip == 0.8:  # at the clip, the gradient is zero; not everywhere
        assert 0.1 < (cells.abs() == 0.8).float().mean() < 0.9
        assert 0.1 < (hidden.abs() == 0.5).float().mean() < 0.9


def test_sampled_loss_is_that_of_the_formula(interpreted):
    """A candidate comes twice, another is a target, and a target is no candidate."""
    torch.manual_seed(0)
    gpu_model = GpuLanguageModel(OPTIONS, len(WORDS), dtype=torch.float32)
    outputs = torch.randn(2, 2, 1, OPTIONS.projection_dim, requires_grad=True)
    targets = torch.tensor([[[3], [9]], [[5], [40]]])
    candidates, log_counts = torch.tensor([0, 1, 2, 3, 9, 9, 30]), torch.randn(7)
    parameters = [outputs, *gpu_model.softmax.parameters()]
    loss = gpu_model.loss(outputs, targets, candidates, log_counts)
    found = torch.autograd.grad(loss, parameters)
    rows = outputs.flatten(0, 2)
    logits = rows @ gpu_model.softmax.weight.t() + gpu_model.softmax.bias.squeeze(1)
    sampled = logits[:, candidates] - log_counts
    sampled = sampled.masked_fill(candidates == targets.view(-1, 1), -torch.inf)
    true = logits.gather(1, targets.view(-1, 1))
    first = torch.zeros(len(rows), dtype=torch.long)
    expected = functional.cross_entropy(torch.cat([true, sampled], dim=1), first)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, parameters))


def test_candidates_estimate_the_full_normalizer(monkeypatch):
    monkeypatch.setattr(trainer, "NUM_FREQUENT", 5)
    monkeypatch.setattr(trainer, "NUM_DRAWS", 200_000)
    torch.manual_seed(0)
    values = torch.rand(50)
    candidates, log_counts = CandidateSampler(torch.arange(50, 0, -1)).sample()
    assert candidates[:5].tolist() == list(range(5))
    assert candidates[5:].unique().tolist() == list(range(5, 50))
    estimate = (values[candidates] * (-log_counts).exp()).sum()
    assert estimate.item() == pytest.approx(values.sum().item(), rel=0.01)


@pytest.mark.slow
def test_types_beyond_the_slots_share_a_vector(interpreted):
    tiny = make_trainer(OPTIONS)
    tiny.step()
    vectors = tiny._token_vectors()
    assert tiny.num_types == len(tiny._inputs.unique()) < tiny.num_slots == tiny._inputs.numel()
    tiny.num_slots = 3
    fewer = tiny._token_vectors()
    kept = tiny._inputs < tiny._inputs.unique()[2]
    torch.testing.assert_close(fewer[kept], vectors[kept])
    assert len(fewer[~kept].unique(dim=0)) == 1


# --- the streams -------------------------------------------------------------------------------


def test_inputs_and_targets_of_a_text(tmp_path):
    (tmp_path / "train.txt").write_text("the cat sat\ndog\n\ndog sat\n")
    (tmp_path / "heldout.txt").write_text("the moon\n")
    words = WordVocabulary([*SPECIAL_WORDS, "the", "cat"])
    corpus = read_corpus(words, [tmp_path / "train.txt"], {"x": [tmp_path / "heldout.txt"]})
    # Other types by frequency, then in the order of the text.
    assert corpus.types == [*SPECIAL_WORDS, "the", "cat", "sat", "dog", "moon"]
    assert corpus.train.tolist() == [3, 4, 5, 1, 6, 1, 6, 5, 1]
    assert corpus.heldout["x"].tolist() == [3, 7, 1]
    streams = Streams(corpus.train, words, batch_size=2, num_steps=2, shuffle=False)
    first, second = ([one.transpose(1, 2).tolist() for one in streams.batch(k)] for k in (0, 1))
    # Each row has four tokens of nine; types that are no words are <UNK> as targets.
    assert first[0] == [[[0, 3], [0, 6]], [[1, 5], [1, 6]]]
    assert second[0] == [[[4, 5], [0, 6]], [[4, 3], [1, 5]]]
    assert first[1] == [[[3, 4], [2, 1]], [[2, 4], [2, 0]]]
    assert second[1] == [[[2, 1], [2, 2]], [[3, 0], [2, 2]]]


def test_each_pass_has_all_sentences_in_a_new_order():
    ids = random_ids()
    # One row, one batch a pass: a direction is all of the text.
    streams = Streams(ids, WORDS, batch_size=1, num_steps=len(ids))
    text = sorted(sentences(ids.tolist(), WORDS.ids["</S>"]))
    orders = []
    for number in range(2):
        _, targets = streams.next_batch()
        forward, backward = targets.squeeze(2).tolist()
        orders.append(sentences(forward, WORDS.ids["</S>"]))
        orders.append([one[::-1] for one in sentences(backward, WORDS.ids["<S>"])])
        assert streams.num_passes == number
    assert [sorted(order) for order in orders] == [text] * 4
    assert len({str(order) for order in orders}) == 4


def sentences(ids, boundary):
    found = [[]]
    for one in ids:
        if one == boundary:
            found.append([])
        else:
            found[-1].append(one)
    assert found.pop() == []
    return found


def test_a_text_shorter_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="has 3 tokens and sentence ends, expected at least the 4"):
        Streams(torch.tensor([3, 4, 1]), WORDS, batch_size=2, num_steps=2)


# --- the program -------------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A folder of text; the program's arguments are it and an output folder."""
    torch.manual_seed(0)
    folder = tmp_path / "text"
    for part, num_sentences in (("train", 40), ("heldout", 3)):
        (folder / part).mkdir(parents=True)
        for name in ("modern-a", "novel-b"):
            lines = sentences(random_ids(num_sentences).tolist(), 1)
            (folder / part / f"{name}.txt").write_text(
                "".join(f"{' '.join(WORDS.words[id_] for id_ in line)}\n" for line in lines)
            )
    WORDS.save(folder / "vocabulary.txt")
    monkeypatch.setattr(sys, "argv", ["gpu_pretraining", str(folder), str(tmp_path / "out")])
    return folder


def no_gpu(text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def no_triton(text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(kernels, "triton", None)


def no_vocabulary(text, monkeypatch):
    (text / "vocabulary.txt").unlink()


def no_novels(text, monkeypatch):
    (text / "heldout" / "novel-b.txt").unlink()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (no_gpu, "no GPU found"),
        (no_triton, "Triton is not installed"),
        (no_vocabulary, "there is no vocabulary file"),
        (no_novels, "there is no text file"),
    ],
)
def test_a_mistake_is_one_line(text, monkeypatch, mistake, message):
    mistake(text, monkeypatch)
    with pytest.raises(SystemExit) as exit_:
        program.main()
    assert str(exit_.value).startswith(f"error: {message}")
    assert "\n" not in str(exit_.value)


@pytest.mark.slow
def test_a_run_saves_the_bilm_that_it_scored(interpreted, text, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(program, "find_gpu", lambda: torch.device("cpu"))
    monkeypatch.setattr(program, "find_options", lambda name: OPTIONS)
    monkeypatch.setattr(program, "NUM_STEPS", 2)
    monkeypatch.setattr(program, "HELDOUT_BATCH_SIZE", 1)
    monkeypatch.setattr(program, "UPDATES_AT_ONCE", 1)
    # Each look at the clock takes a second.
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=count().__next__))
    sys.argv += ["--seconds", "20", "--batch-size", "2", "--learning-rate", "3"]
    program.main()
    lines = [line.split()[1:] for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines].count("saved") == 3
    found = [(line[3], *map(float, line[1:3])) for line in lines if line[0] == "perplexity"]
    assert found[-2] != found[0]  # it was trained
    out = tmp_path / "out"
    bilm = load_bilm(out / OPTIONS_FILE, out / WEIGHTS_FILE)
    softmax = WordSoftmax(len(WORDS), OPTIONS.projection_dim)
    load_softmax(softmax, out / SOFTMAX_FILE)
    for name, *perplexities in found[-2:]:
        heldout = Text(find_text_files(name), batch_size=1, num_steps=2, shuffle=False)
        pairs = heldout.pairs(WordVocabulary.from_file(out / VOCABULARY_FILE))
        *sums, num_batches = sum_of_losses(LanguageModel(bilm, softmax), pairs)
        expected = [math.exp(one / num_batches) for one in sums]
        assert perplexities == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_an_update_compiles_for_a_gpu(monkeypatch, tmp_path):
    triton = pytest.importorskip("triton", reason="no Triton: PyTorch has it where it has CUDA")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(90))
    compiled = {}

    def kernel(name):
        return compiled.setdefault(name, CompiledOnly(getattr(kernels, name)))

    monkeypatch.setattr(model, "kernel", kernel)
    make_trainer(OPTIONS).step()
    assert {*compiled} == {"lstm_forward", "lstm_backward", "output_backward", "sampled_softmax"}
    assert all(code["cubin"] for one in compiled.values() for code in one.code.values())
