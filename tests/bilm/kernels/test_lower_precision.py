import copy
import re
from pathlib import Path

import pytest
import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.kernels import library, tuning
from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo
from tests.cases import first_quick
from tests.tiny_bilm import BATCHES, random_bilm, write

REPOSITORY = Path(__file__).resolve().parents[3]
# Released sizes but for the number of units: wide enough for a cosine to mean something.
SIZES = {
    "projection_dim": 32,
    "cell_size": 64,
    "char_embedding_dim": 16,
    "filters": ((1, 32), (2, 32), (3, 64)),
    "num_highways": 1,
    "cell_clip": 3.0,
    "projection_clip": 3.0,
}
# Least cosine of a token's vector with the exact one.
COSINE = {"float16": 0.999999, "bfloat16": 0.9999, "int8": 0.9995}
# On the embedded biLM, whose values have heavier tails; boundaries are the worst in bfloat16.
TRAINED_COSINE = {"float16": 0.999999, "bfloat16": 0.9998, "int8": 0.995}


def biLMs(dtype, **changes):
    """The same weights, of the size that initial weights have, twice."""
    torch.manual_seed(3)
    exact = BiLm(random_bilm(**SIZES, **changes).options, state="reset").requires_grad_(False)
    lower = BiLm(exact.options, state="reset", dtype=dtype).requires_grad_(False)
    lower.load_state_dict(exact.state_dict())
    return exact, lower


@pytest.mark.parametrize("dtype", COSINE)
@pytest.mark.parametrize("variant", [*library.runnable_variants(), library.NONE])
def test_every_layer_of_every_token_is_close(variant, dtype, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_HALVED", 0)
    monkeypatch.setattr(tuning, "MOST_EXACT", 0)
    monkeypatch.setenv(library.VARIABLE, variant)
    exact, lower = biLMs(dtype)
    for batch in BATCHES:
        expected, found = (bilm(batch_to_ids(batch)) for bilm in (exact, lower))
        for theirs, ours in zip(expected["activations"], found["activations"], strict=True):
            assert ours.dtype == torch.float32
            cosine = torch.cosine_similarity(ours, theirs, dim=-1)[found["mask"]]
            assert cosine.min() >= COSINE[dtype]
            # PyTorch's operators on a CPU multiply exactly but for int8.
            assert not torch.equal(ours, theirs) or (variant == library.NONE and dtype != "int8")


@first_quick("dtype", dict.fromkeys(["int8", *COSINE]))
def test_on_trained_weights_too(dtype, monkeypatch):
    """They give heavy tails that random ones do not."""
    monkeypatch.setattr(tuning, "LEAST_HALVED", 0)
    monkeypatch.setattr(tuning, "MOST_EXACT", 0)
    text = (REPOSITORY / "examples" / "ner" / "test.txt").read_text(encoding="utf-8")
    sentences = [[line.split()[0] for line in block.splitlines()] for block in text.split("\n\n")]
    ids = batch_to_ids([sentence for sentence in sentences if sentence])
    exact, lower = (
        load_bilm("embedded", state="reset", dtype=one).requires_grad_(False)(ids)
        for one in (None, dtype)
    )
    for theirs, ours in zip(exact["activations"], lower["activations"], strict=True):
        cosine = torch.cosine_similarity(ours, theirs, dim=-1)[exact["mask"]]
        assert cosine.min() >= TRAINED_COSINE[dtype]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.usefixtures("operators")
def test_weights_in_half_precision_are_as_exact_as_the_reference(dtype, requires_grad):
    bilm = load_bilm("embedded", state="reset", requires_grad=requires_grad).to(dtype)
    ids = batch_to_ids(BATCHES[0])
    with use_backend("reference"), torch.no_grad():
        expected = bilm(ids)
        exact = copy.deepcopy(bilm).double()(ids)
    found = bilm(ids)
    for true, theirs, ours in zip(*(one["activations"] for one in (exact, expected, found))):
        assert ours.dtype == dtype
        error, usual = ((one.double() - true).abs().mean() for one in (ours.detach(), theirs))
        assert error < 0.6 * usual
    if requires_grad:
        found["activations"][-1].sum().backward()
        assert {one.grad.dtype for one in bilm.parameters()} == {dtype}


def test_int8_vectors_do_not_depend_on_the_batch():
    _, lower = biLMs("int8")
    together = lower(batch_to_ids(BATCHES[0]))
    for row, sentence in enumerate(BATCHES[0]):
        alone = lower(batch_to_ids([sentence]))
        for ours, theirs in zip(alone["activations"], together["activations"], strict=True):
            # A last bit of float32 may fall on the other side of a rounding to 8 bits.
            theirs = theirs[row, : len(sentence) + 2]
            torch.testing.assert_close(ours[0], theirs, atol=2e-3, rtol=0)


def test_it_is_never_the_default_and_leaves_checkpoints_alone(tmp_path):
    files = write(tmp_path)
    exact, lower = load_bilm(*files), load_bilm(*files, dtype="int8")
    lower(batch_to_ids(BATCHES[0]))
    for name, value in exact.state_dict().items():
        assert torch.equal(lower.state_dict()[name], value)
    assert {module.dtype for module in exact.modules() if hasattr(module, "dtype")} == {None}
    elmo = Elmo(*files, dtype="int8", state="reset", dropout=0.0)
    ids = batch_to_ids(BATCHES[0])
    exact = Elmo(*files, state="reset", dropout=0.0)(ids)["elmo_representations"][0]
    assert not torch.allclose(elmo(ids)["elmo_representations"][0], exact, atol=1e-5)


INFINITE = (
    "_token_embedder._char_embedding_weights",
    "_token_embedder._projection.weight",
    "_token_embedder._highways._layers.1.bias",
    "_token_embedder._highways._layers.0.weight",
    "_token_embedder.char_conv_1.weight",
    "_elmo_lstm.forward_layer_0.input_linearity.weight",
    "_elmo_lstm.forward_layer_0.state_linearity.bias",
    "_elmo_lstm.backward_layer_1.state_linearity.weight",
    "_elmo_lstm.forward_layer_0.state_projection.weight",
)


@pytest.mark.parametrize("name", INFINITE)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e30])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [None, "bfloat16", "int8"])
def test_infinite_and_huge_weights_give_no_more_nan_than_the_definition(
    name, value, dtype, stored, operators
):
    ids = batch_to_ids(BATCHES[2])
    bilm = random_bilm(dtype=dtype).requires_grad_(False).to(stored)
    bilm.state = "reset"
    bilm.get_parameter(name).view(-1)[2] = value
    found = torch.stack(bilm(ids)["activations"])
    with use_backend("reference"):
        expected = torch.stack(bilm(ids)["activations"])
    assert found.isnan().sum() <= expected.isnan().sum()
    ordinary = expected.abs() < 1e3
    torch.testing.assert_close(found[ordinary], expected[ordinary], atol=0.05, rtol=0)


@pytest.mark.parametrize("name", INFINITE)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_infinite_weights_give_no_more_nan_in_training_than_the_definition(name, stored, operators):
    ids = batch_to_ids(BATCHES[2])
    for value in (float("inf"), float("-inf"), 1e30):
        bilm = random_bilm().to(stored)
        bilm.state = "reset"
        bilm.get_parameter(name).data.view(-1)[2] = value
        exact = copy.deepcopy(bilm).float()
        with use_backend("reference"):
            expected = torch.stack(exact(ids)["activations"])
        found = torch.stack(bilm(ids)["activations"])
        assert found.isnan().sum() <= expected.isnan().sum()
        ordinary = expected.abs() < 1e3
        pairs = [(found[ordinary].float(), expected[ordinary])]
        for one in (found, expected):
            one[ordinary].sum().backward()
        for one, exact_one in zip(bilm.parameters(), exact.parameters(), strict=True):
            assert one.grad.isnan().sum() <= exact_one.grad.isnan().sum()
            is_finite = exact_one.grad.isfinite()
            pairs.append((one.grad[is_finite].float(), exact_one.grad[is_finite]))
        for one, exact_one in pairs:
            torch.testing.assert_close(one, exact_one, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("dtype", [None, "int8"])
@pytest.mark.parametrize(
    "name",
    [
        "_token_embedder",
        "_token_embedder._projection",
        "_token_embedder._highways",
        "_token_embedder.char_conv_0",
        "_elmo_lstm.forward_layer_0",
        "_elmo_lstm.forward_layer_1.state_linearity",
        "_elmo_lstm.backward_layer_0.input_linearity",
        "_elmo_lstm.backward_layer_0.state_projection",
    ],
)
def test_a_part_of_another_dtype_or_device_is_right_or_refused(name, dtype, trains):
    """The kernels never read its memory as if it were like the rest."""
    ids, refused = batch_to_ids(BATCHES[2]), []
    for other in (torch.float16, torch.bfloat16, torch.float64, "meta"):
        bilm = random_bilm(dtype=dtype).requires_grad_(trains)
        bilm.state = "reset"
        with use_backend("reference"):
            expected = torch.stack(bilm(ids)["activations"])
        bilm.get_submodule(name).to(other)
        try:
            found = torch.stack(bilm(ids)["activations"])
        except (ValueError, RuntimeError) as error:
            refused.append(str(error))
        else:
            torch.testing.assert_close(found.float(), expected, atol=0.02, rtol=0)
    assert all(re.search("dtype|device|meta", one) for one in refused)
