"""Where a sentence's state starts, what follows the module around, and what it refuses."""

import copy
import functools
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.model.bilm import BiLmOutput
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.state import STATE_MODES, WARM_UP_TEXT
from elmo_plugin.bilm.use.elmo import Elmo
from tests import peak_memory
from tests.tiny_bilm import BATCHES, OPTIONS, random_bilm, replica_of

SENTENCES = [sentence for batch in BATCHES for sentence in batch]


def vectors(bilm, sentences, extra_padding=0):
    """Each sentence's layers without padding, boundaries included: `(mixture_size, n + 2, dim)`."""
    ids = torch.nn.functional.pad(batch_to_ids(sentences), (0, 0, 0, extra_padding))
    with torch.no_grad():
        layers = torch.stack(bilm(ids)["activations"], dim=1)
    return [layer[:, : len(s) + 2] for layer, s in zip(layers, sentences, strict=True)]


assert_close = functools.partial(torch.testing.assert_close, atol=1e-6, rtol=0)


def largest_difference(found, expected):
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("state", ["reset", "primed"])
@pytest.mark.parametrize("skip", [True, False])
def test_a_sentence_is_the_same_alone_and_in_any_company(state, skip):
    bilm = random_bilm(state=state, use_skip_connections=skip)
    alone = [vectors(bilm, [sentence])[0] for sentence in SENTENCES]
    assert_close(vectors(bilm, SENTENCES), alone)
    assert_close(vectors(bilm, SENTENCES, extra_padding=5), alone)
    assert_close(vectors(bilm, SENTENCES[::-1])[::-1], alone)
    order = torch.randperm(len(SENTENCES), generator=torch.Generator().manual_seed(3)).tolist()
    shuffled = []
    for start in range(0, len(order), 4):
        shuffled += vectors(bilm, [SENTENCES[k] for k in order[start : start + 4]])
    assert_close([shuffled[order.index(k)] for k in range(len(order))], alone)
    assert bilm.carried is None


def test_carry_begins_as_reset_depends_on_the_batch_before_and_forgets_when_told():
    bilm = random_bilm(state="carry")
    first = vectors(bilm, SENTENCES[:3])
    assert_close(first, vectors(random_bilm(state="reset"), SENTENCES[:3]))
    second = vectors(bilm, SENTENCES[:3])
    assert largest_difference(first, second) > 1e-2
    bilm.reset_states()
    assert_close(vectors(bilm, SENTENCES[:3]), first)


def test_carry_joins_sentences_as_one_row_after_another():
    """A row goes on where the same row stopped, whatever the rows beside it do."""
    together, apart = random_bilm(state="carry"), random_bilm(state="carry")
    for batch in BATCHES:
        rows = [row[:1] for row in batch]
        assert_close(vectors(together, rows)[:1], vectors(apart, rows[:1]))


def test_primed_is_carry_after_the_warm_up_text():
    carry = random_bilm(state="carry")
    lines = WARM_UP_TEXT.splitlines()
    assert len(lines) > 4
    for line in lines:
        vectors(carry, [line.split()])
    primed = vectors(random_bilm(state="primed"), SENTENCES)
    assert_close(primed[:1], vectors(carry, SENTENCES[:1]))
    assert largest_difference(primed, vectors(random_bilm(state="reset"), SENTENCES)) > 1e-2


@pytest.mark.parametrize("state", STATE_MODES)
def test_one_sentence_is_as_among_others(state):
    """One sentence is not sorted; in carry the next one starts where it ended."""
    sentences = [["moon", "cat", "sat"] * 4, ["cat", "sat"], ["sat"]]
    peer, bilm = random_bilm(state=state), random_bilm(state=state)
    for one in sentences:
        assert_close(vectors(bilm, [one]), vectors(peer, [one, ["moon"]])[:1])


MEASURE = """
import torch
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.peak_memory import Growth
from tests.tiny_bilm import random_bilm
bilm = random_bilm(projection_dim=512, cell_size=4)
bilm.state = "reset"
def measure(num_sentences, num_tokens):
    # Few distinct words: vectors of many are remembered between calls, up to a limit of their own.
    ids = batch_to_ids([["cat", "moon", "sat"] * (num_tokens // 3)] * num_sentences)
    with torch.no_grad(), Growth() as growth:
        layers = bilm(ids)["activations"]
    return growth.megabytes - sum(layer.nbytes for layer in layers) / 2**20
for shape in ((64, 18), (64, 18), (512, 18), (1, 9_000)):
    print(measure(*shape))
"""


@pytest.mark.slow
def test_memory_beside_the_layers_is_half_of_them_at_most(monkeypatch):
    # Freed memory goes back to the system, so that the peak is what was held at one time.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    _, few, many, one_long = peak_memory.run(MEASURE)
    # The layers take 10,240 times 12 kB, 120 MB: packed rows of both directions are a third.
    assert many < few + 60
    assert one_long < few + 60


@pytest.mark.parametrize("state", STATE_MODES)
def test_a_batch_of_no_sentences(state):
    bilm = random_bilm(state=state)
    vectors(bilm, SENTENCES)
    output = bilm(torch.zeros(0, 3, 50, dtype=torch.long))
    assert output["mask"].shape == (0, 5)
    assert [layer.shape for layer in output["activations"]] == [(0, 5, 12)] * 3


def test_later_tokens_do_not_reach_back_nor_earlier_ones_forward():
    bilm = random_bilm(state="reset", cell_clip=None, projection_clip=None)
    one, other = vectors(bilm, [["a", "b", "c", "d"], ["a", "b", "X", "d"]])
    differs = ((one - other).abs() > 1e-6).unflatten(-1, (2, OPTIONS.projection_dim)).any(-1)
    # With the boundaries, the third token stands at 3 of 0 to 5; layer 0 is the token itself.
    assert differs[0].any(-1).tolist() == [False] * 3 + [True] + [False] * 2
    for layer in (1, 2):
        assert differs[layer, :, 0].tolist() == [False] * 3 + [True] * 3
        assert differs[layer, :, 1].tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("state", STATE_MODES)
def test_in_a_replica_of_data_parallel(state):
    """A replica has a carried state of its own, on its own device."""
    bilm = random_bilm(state=state)
    found = vectors(replica_of(bilm), SENTENCES)
    assert bilm.carried is None
    assert_close(found, vectors(bilm, SENTENCES))
    assert_close(vectors(replica_of(bilm), SENTENCES), found)


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_gradient_checkpointing(state):
    ids = batch_to_ids([["a", "cat"], ["The"]])

    def gradients(run):
        bilm = random_bilm(state=state)
        run(lambda ids: bilm(ids)["activations"][-1], ids).sum().backward()
        return [one.grad for one in bilm.parameters()]

    found = gradients(lambda f, ids: checkpoint(f, ids, use_reentrant=False))
    torch.testing.assert_close(found, gradients(lambda f, ids: f(ids)))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_in_carry_is_an_error(use_reentrant):
    """The second time, the batch would start from the state that the first time left."""
    bilm = random_bilm(state="carry")
    ids = torch.ones(1, requires_grad=True), batch_to_ids([["a", "cat"], ["The"]])

    def run(one, ids):
        return bilm(ids)["activations"][-1] * one

    with pytest.raises(RuntimeError, match="computes a batch again in state 'carry'"):
        checkpoint(run, *ids, use_reentrant=use_reentrant).sum().backward()


def test_a_caller_may_write_to_the_states_that_it_got():
    bilm = random_bilm(state="primed").requires_grad_(False)
    expected = bilm.start_states([0])[0].hidden.clone()
    for state in bilm.start_states([0]):
        state.map(torch.Tensor.zero_)
    assert torch.equal(bilm.start_states([0])[0].hidden, expected)


@pytest.mark.parametrize("training", [True, False])
def test_primed_leaves_the_module_as_it_was(training):
    bilm = random_bilm(state="primed").train(training)
    vectors(bilm, SENTENCES)
    assert bilm.state == "primed"
    assert bilm.training is training
    assert all(module.training is training for module in bilm.modules())


@pytest.mark.parametrize("state", STATE_MODES)
def test_the_state_is_no_parameter_no_buffer_and_not_in_the_state_dict(state):
    bilm = random_bilm(state=state)
    names = list(bilm.state_dict())
    vectors(bilm, SENTENCES)
    assert list(bilm.state_dict()) == names == [name for name, _ in bilm.named_parameters()]
    assert not list(bilm.buffers())


@pytest.mark.parametrize("state", STATE_MODES)
def test_the_state_follows_the_module_to_another_type(state):
    bilm, wide = random_bilm(state=state), random_bilm(state=state)
    vectors(bilm, SENTENCES)
    vectors(wide, SENTENCES)
    assert vectors(wide.double(), SENTENCES)[0].dtype == torch.float64
    expected = vectors(bilm, SENTENCES)
    vectors(wide, SENTENCES)
    wide = random_bilm(state=state)
    vectors(wide, SENTENCES)
    wide.double()
    assert_close([layer.float() for layer in vectors(wide, SENTENCES)], expected)
    wide.float()
    assert vectors(wide, SENTENCES)[0].dtype == torch.float32


@pytest.mark.parametrize("state", STATE_MODES)
@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda bilm: pickle.loads(pickle.dumps(bilm))], ids=["copy", "pickle"]
)
def test_a_copy_goes_on_alike_and_apart(state, clone):
    bilm = random_bilm(state=state)
    vectors(bilm, SENTENCES)
    other = clone(bilm)
    expected = vectors(bilm, SENTENCES)
    assert_close(vectors(other, SENTENCES), expected)
    if state == "carry":
        bilm.reset_states()
        assert other.carried is not None


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("state", STATE_MODES)
def test_what_inference_mode_left_can_be_gone_on_with(state, requires_grad):
    bilm, other = (random_bilm(state=state).requires_grad_(requires_grad) for _ in range(2))
    with torch.inference_mode():
        bilm(batch_to_ids(SENTENCES[:3]))
    other(batch_to_ids(SENTENCES[:3]))
    for some in (SENTENCES[:1], SENTENCES):
        found, expected = (one(batch_to_ids(some))["activations"] for one in (bilm, other))
        assert_close(found, expected)
        if requires_grad:
            found[-1].sum().backward()
            assert bilm.lstm.forward_layer_0.input_linearity.weight.grad.any()
    with torch.inference_mode():
        bilm(batch_to_ids(SENTENCES))


@pytest.mark.parametrize("requires_grad", [True, False])
def test_mixed_precision(requires_grad, operators):
    """`use_amp` in AllenNLP's trainer: the recurrence stays in the weights' own type."""
    bilm = random_bilm(state="carry").requires_grad_(requires_grad)
    exact = vectors(random_bilm(state="carry"), SENTENCES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layers = bilm(batch_to_ids(SENTENCES))["activations"]
        bilm(batch_to_ids(SENTENCES))
        bilm.char_cnn(batch_to_ids([["few", "rows"]])[0])  # other kernels serve them
    for row, expected in enumerate(exact):
        for found, layer in zip(layers, expected, strict=True):
            found = found[row, : layer.shape[0]].float()
            torch.testing.assert_close(found, layer, atol=0.1, rtol=0.1)
    if requires_grad:
        layers[-1].float().sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in bilm.parameters())
    bilm.reset_states()
    assert_close(vectors(bilm, SENTENCES), exact)  # nothing of lower precision was kept


def test_a_biLM_in_float64_is_left_alone_by_autocast(operators):
    """As PyTorch leaves it, frozen or not."""
    for requires_grad in (False, True):
        bilm = random_bilm(state="reset").double().requires_grad_(requires_grad)
        exact = bilm(batch_to_ids(SENTENCES))["activations"]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = bilm(batch_to_ids(SENTENCES))["activations"]
        for ours, theirs in zip(found, exact, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.skipif(library.variant() is None, reason="PyTorch's backward pass uses autocast")
def test_gradients_are_the_same_where_backward_is_called_within_autocast():
    gradients = []
    for within in (False, True):
        bilm = random_bilm(state="reset").requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            loss = bilm(batch_to_ids(SENTENCES))["activations"][-1].float().square().sum()
            if within:
                loss.backward()
        if not within:
            loss.backward()
        gradients.append([one.grad for one in bilm.parameters() if one.grad is not None])
    assert len(gradients[0]) > 10
    assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("make", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_made_in_inference_mode_runs(make):
    bilm = random_bilm(state="reset")
    with torch.inference_mode():
        other = make(bilm)
    assert_close(vectors(other, SENTENCES), vectors(bilm, SENTENCES))


def test_token_vectors_are_the_token_layer():
    bilm = random_bilm()
    words = ["a", "b", "naïve"]
    layer = vectors(bilm, [words])[0][0]
    found = bilm.token_vectors(words, batch_size=2)
    torch.testing.assert_close(torch.cat([found, found], dim=1), layer[1:-1])
    assert bilm.token_vectors([]).shape == (0, OPTIONS.projection_dim)


def test_tokens_are_the_rows_without_boundaries():
    bilm, ids = random_bilm(state="reset"), batch_to_ids([["a"], ["of", "the", "moon"], []])
    output = BiLmOutput.of(bilm(ids))
    tokens = output.tokens()
    assert torch.equal(tokens.mask, (ids > 0).any(dim=-1))
    for found, layer in zip(tokens.layers, output.layers, strict=True):
        assert torch.equal(found[1], layer[1, 1:-1])
        assert torch.equal(found[0, :1], layer[0, 1:2])
        assert not found[0, 1:].any()
        assert not found[2].any()


def test_refusals():
    bilm = random_bilm()
    with pytest.raises(ValueError, match=r"shape \(2, 3, 40\), expected .*num_tokens, 50\)"):
        bilm(torch.ones(2, 3, 40, dtype=torch.long))
    ids = batch_to_ids(SENTENCES)
    for wrong in (262, -1):
        ids[0, 0, 1] = wrong
        with pytest.raises(ValueError, match=rf"character id {wrong}, expected 0 to 261"):
            bilm(ids)


@pytest.mark.parametrize(
    ("row", "empty", "position"), [(1, [0], 1), (0, [0, 1], 2), (1, [1], 2), (1, [1, 3], 2)]
)
@pytest.mark.parametrize("form", ["characters", "words", "cache", "four dimensions"])
def test_padding_before_a_token_names_the_sentence(row, empty, position, form, files):
    words = ["@@PADDING@@", "the", "boat", "sank"]
    word_ids = torch.tensor([[1, 2, 3, 0], [2, 3, 1, 2]])
    ids = batch_to_ids([[words[one] for one in sentence if one] for sentence in word_ids.tolist()])
    ids[row, empty] = word_ids[row, empty] = 0
    arguments = {"words": {"vocab_to_cache": words}, "cache": {"cache": "memory", "state": "reset"}}
    elmo = Elmo(*files, dropout=0, **arguments.get(form, {}))
    if form == "four dimensions":
        ids, word_ids = ids.unsqueeze(0), word_ids.unsqueeze(0)
    with pytest.raises(ValueError, match=rf"sentence {row} .* position {position} after padding"):
        elmo(ids, word_ids)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
@pytest.mark.parametrize("trains", [False, True])
def test_ids_of_other_integer_types_give_the_same_layers(dtype, trains):
    bilm = random_bilm(state="reset").requires_grad_(trains)
    ids = batch_to_ids([["The", "cat"], ["sat"]])
    found = bilm(ids.to(dtype))["activations"]  # first, since token vectors are cached
    for layer, expected in zip(found, bilm(ids)["activations"], strict=True):
        assert torch.equal(layer, expected)
