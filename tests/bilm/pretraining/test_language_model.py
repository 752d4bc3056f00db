import math
import random
from types import SimpleNamespace

import pytest
import torch

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.config import LoopSettings
from elmo_plugin.bilm.pretraining.language_model import LanguageModel, loss_metrics, sum_of_losses
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.loop import Pretraining
from elmo_plugin.bilm.pretraining.optimization import WarmupCosine
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import vocabulary_of

OPTIONS = ElmoOptions(8, 24, 2, 6, ((1, 8), (2, 8)), 1, num_characters=12)
SHAPE = {"batch_size": 4, "num_steps": 10, "num_characters": 12}


def write_text(path, seed, num_sentences):
    """The object depends on the subject three words before."""
    rng = random.Random(seed)
    objects = {"dog": "bone", "cat": "mouse", "cow": "grass", "bird": "worm"}
    lines = []
    for _ in range(num_sentences):
        subject = rng.choice(list(objects))
        adverb = rng.choice(["often", "never", "always"])
        lines.append(f"the {subject} {adverb} eats the {objects[subject]} .\n")
    path.write_text("".join(lines))
    return [path]


@pytest.fixture
def text(tmp_path):
    train = write_text(tmp_path / "train.txt", 0, 400)
    heldout = write_text(tmp_path / "heldout.txt", 1, 80)
    return train, heldout, vocabulary_of(train)


def model(vocabulary, dropout=0.0, num_samples=None):
    torch.manual_seed(0)
    softmax = WordSoftmax(len(vocabulary), OPTIONS.projection_dim, num_samples)
    return LanguageModel(BiLm(OPTIONS), softmax, dropout)


def evaluate(language_model, paths, vocabulary):
    batches = StreamLoader(paths, shuffle=False, **SHAPE).pairs(vocabulary)
    forward, backward, count = sum_of_losses(language_model, batches)
    return SimpleNamespace(**loss_metrics(forward / count, backward / count, sampled=False))


@pytest.mark.slow
def test_heldout_perplexity_falls_to_what_the_text_leaves_open(text, tmp_path):
    train, heldout, vocabulary = text
    language_model = model(vocabulary, num_samples=5)
    before = evaluate(language_model, heldout, vocabulary)
    assert before.perplexity == pytest.approx(len(vocabulary), rel=0.3)
    settings = LoopSettings(
        {"type": "adamw", "lr": 2e-2, "weight_decay": 0.01},
        num_epochs=2,
        learning_rate_scheduler=WarmupCosine(warmup_steps=10),
        grad_norm=1.0,
    )
    texts = (
        StreamLoader(train, **SHAPE, batches_per_epoch=60),
        StreamLoader(heldout, **SHAPE, shuffle=False),
    )
    (tmp_path / "out").mkdir()
    run = Pretraining(language_model, vocabulary, *texts, tmp_path / "out", settings)
    metrics = run.run()
    after = evaluate(language_model, heldout, vocabulary)
    # Four subjects and three adverbs in eight words, forward; the object tells the subject.
    entropy = math.exp((math.log(4) + math.log(3)) / 8)
    assert entropy * 0.97 < after.forward_perplexity < before.forward_perplexity / 4
    assert entropy * 0.97 < after.backward_perplexity < before.backward_perplexity / 4
    assert metrics["validation_forward_perplexity"] == pytest.approx(
        after.forward_perplexity, abs=0.01
    )
    names = {"options.json", "weights.hdf5", "vocabulary.txt", "softmax.hdf5", "card.json"}
    assert names <= {path.name for path in (tmp_path / "out").iterdir()}


def batch_of(paths, vocabulary, num_steps):
    shape = {**SHAPE, "num_steps": num_steps}
    return next(StreamLoader(paths, **shape).pairs(vocabulary))


def cut(batch, num_steps):
    """The same streams, fewer steps at a time."""
    for start in range(0, batch.targets.shape[1], num_steps):
        steps = slice(start, start + num_steps)
        yield batch._replace(tokens=batch.tokens[:, steps], targets=batch.targets[:, steps])


def test_the_carried_state_makes_short_steps_one_long_one(text):
    train, _, vocabulary = text
    language_model = model(vocabulary).double().eval()
    batch = batch_of(train, vocabulary, 30)
    whole = language_model(batch)
    states, losses = None, []
    for part in cut(batch, 5):
        output = language_model(part, states)
        states = output.states
        losses.append(torch.stack([output.forward_loss, output.backward_loss]))
    expected = torch.stack([whole.forward_loss, whole.backward_loss])
    torch.testing.assert_close(sum(losses) / 6, expected)
    for found, wanted in zip(states, whole.states):
        torch.testing.assert_close(found.hidden, wanted.hidden)
        torch.testing.assert_close(found.cell, wanted.cell)
        assert not found.hidden.requires_grad
    without = [language_model(part).loss for part in cut(batch, 5)]
    assert abs(sum(without) / 6 - whole.loss) > 1e-4


def test_evaluation_carries_its_state_and_puts_the_mode_back(text):
    _, heldout, vocabulary = text
    language_model = model(vocabulary, dropout=0.5).train()
    found = evaluate(language_model, heldout, vocabulary)
    assert language_model.training
    language_model.eval()
    states, losses = None, []
    with torch.no_grad():
        for batch in StreamLoader(heldout, shuffle=False, **SHAPE).pairs(vocabulary):
            output = language_model(batch, states)
            states = output.states
            losses.append(output.forward_loss)
    forward, backward = found.forward_perplexity, found.backward_perplexity
    assert forward == pytest.approx(math.exp(sum(losses) / len(losses)))
    assert found.perplexity == pytest.approx(math.sqrt(forward * backward))


def test_evaluation_of_no_batch_is_an_error(text):
    _, heldout, vocabulary = text
    with pytest.raises(ValueError, match="holds less than one batch of 4 streams"):
        StreamLoader(heldout, 4, num_steps=100_000, shuffle=False).pairs(vocabulary)


def test_the_two_directions_share_tokens_and_softmax_but_no_text(text):
    train, _, vocabulary = text
    language_model = model(vocabulary)
    batch = batch_of(train, vocabulary, 10)
    language_model(batch).forward_loss.backward()
    touched = {name for name, p in language_model.named_parameters() if p.grad is not None}
    assert any("char_conv" in name for name in touched)
    assert "softmax.weight" in touched
    assert any("forward_layer_1" in name for name in touched)
    assert not any("backward_layer" in name for name in touched)
    one, other = ({tuple(place) for place in each.tolist()} for each in batch.sources)
    assert one != other


def test_dtype_is_of_the_training_step_alone(text):
    train, heldout, vocabulary = text
    exact, mixed = model(vocabulary, num_samples=5), model(vocabulary, num_samples=5)
    mixed = LanguageModel(mixed.bilm, mixed.softmax, 0.0, dtype="bfloat16")
    assert evaluate(exact, heldout, vocabulary) == evaluate(mixed, heldout, vocabulary)
    batch = next(StreamLoader(train, **SHAPE).pairs(vocabulary))
    losses, gradients = [], []
    for language_model in (exact.train(), mixed.train()):
        torch.manual_seed(0)
        output = language_model(batch)
        output.loss.backward()
        losses.append(output.loss.item())
        gradients.append({name: one.grad for name, one in language_model.named_parameters()})
        assert {state.dtype for pair in output.states for state in pair} == {torch.float32}
    # Variants of the library for processors without bfloat16 products train in float32.
    rounds = library.variant() is None or "bfloat16" in library.trained_formats()
    assert (losses[0] != losses[1]) == rounds
    assert losses[0] == pytest.approx(losses[1], abs=0.01)
    for name, gradient in gradients[0].items():
        assert gradient.dtype == torch.float32
        assert torch.equal(gradient, gradients[1][name]) != rounds, name
        torch.testing.assert_close(gradient, gradients[1][name], atol=5e-3, rtol=0.1)


def test_the_text_has_as_many_characters_a_token_as_the_bilm(text):
    train, _, vocabulary = text
    batch = next(StreamLoader(train, **{**SHAPE, "num_characters": 20}).pairs(vocabulary))
    with pytest.raises(ValueError, match="num_characters is 20, expected the biLM's 12"):
        model(vocabulary)(batch)


def test_dtype_is_one_of_those_there_are(text):
    with pytest.raises(ValueError, match="dtype is 'int8', expected None, 'auto' or one of"):
        LanguageModel(BiLm(OPTIONS), model(text[2]).softmax, dtype="int8")
