import copy
from unittest.mock import Mock

import numpy
import pytest
import torch
from torch.nn.utils import parametrize, prune

from elmo_plugin.bilm.files.digest import fingerprint, weights_digest
from elmo_plugin.bilm.kernels import derived as derived_module
from elmo_plugin.bilm.kernels.derived import NUM_COLUMNS, in_doubt
from tests.tiny_bilm import random_bilm


def least_bit(values):
    values.view(torch.int32)[-1, -1] ^= 1


def swapped_rows(values):
    values.copy_(values[[1, 0, *range(2, len(values))]])


def reversed_rows(values):
    values.copy_(values.flip(1))


def zero_with_a_sign(values):
    values[0, 0] = -0.0


CHANGES = [least_bit, swapped_rows, reversed_rows, zero_with_a_sign]


# Less than a row of sums and odd, exactly a row, some rows and a rest.
@pytest.mark.parametrize("shape", [(3, 5), (2, NUM_COLUMNS), (40, 128)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_without_a_sign_is_seen_once_there_is_doubt(change, shape, operators):
    bilm = random_bilm().requires_grad_(False)
    weight = torch.randn(shape)
    weight[0, 0] = 0.0
    bilm.extra = torch.nn.Parameter(weight, requires_grad=False)
    view = bilm.extra.data
    before = weights_digest(bilm)
    in_doubt([bilm.extra])
    assert weights_digest(bilm) is before  # it was not taken again
    change(view)
    in_doubt([bilm.extra])
    after = weights_digest(bilm)
    assert after != before
    assert after == weights_digest(copy.deepcopy(bilm))
    assert weights_digest(bilm) is after


def test_a_change_with_a_sign_is_seen_at_once():
    bilm = random_bilm().requires_grad_(False)
    layers = bilm.lstm
    found = [weights_digest(bilm)]
    layers.forward_layer_0.input_linearity.weight.add_(0.1)
    found.append(weights_digest(bilm))
    bilm.register_parameter("extra", torch.nn.Parameter(torch.zeros(2, 3)))
    found.append(weights_digest(bilm))
    for owner, name, value in (
        (bilm, "state", "primed"),
        (layers.forward_layer_0, "dtype", "int8"),
        (layers, "use_skip_connections", False),
        (bilm.char_cnn, "_activation", torch.tanh),
        (layers.forward_layer_1, "cell_clip", 0.1),
        (bilm, "extra", torch.nn.Parameter(torch.zeros(3, 2))),
    ):
        setattr(owner, name, value)
        found.append(weights_digest(bilm))
    assert len(set(found)) == len(found)


def prune_a_weight(bilm):
    prune.l1_unstructured(bilm.lstm.forward_layer_0.input_linearity, "weight", 0.5)


def hook_a_layer(bilm):
    bilm.lstm.register_forward_hook(lambda *_: None)


def parametrize_a_weight(bilm):
    layer = bilm.lstm.forward_layer_0.input_linearity
    parametrize.register_parametrization(layer, "weight", torch.nn.Identity())


def stride_of_two(bilm):
    bilm.char_cnn.char_conv_0.stride = (2,)


def another_activation(bilm):
    bilm.char_cnn._activation = torch.nn.functional.gelu


@pytest.mark.parametrize(
    "change",
    [prune_a_weight, hook_a_layer, parametrize_a_weight, stride_of_two, another_activation],
)
def test_nothing_is_resumed_or_cached_where_vectors_depend_on_more(change):
    bilm = random_bilm().requires_grad_(False)
    change(bilm)
    assert weights_digest(bilm) is None
    assert fingerprint(bilm) != fingerprint(bilm)


def test_settings_that_were_assigned_change_the_fingerprint():
    """So that `--resume` takes no vectors from before."""
    bilm = random_bilm()
    found = [fingerprint(bilm)]
    for owner, name, value in (
        (bilm.lstm, "use_skip_connections", False),
        (bilm.lstm.forward_layer_0, "cell_clip", 0.1),
        (bilm.lstm.backward_layer_1, "projection_clip", None),
        (bilm.char_cnn, "_activation", torch.tanh),
        (bilm.char_cnn, "dtype", "int8"),
        (bilm.lstm.forward_layer_1, "cell_clip", numpy.float32(0.2)),
    ):
        before = getattr(owner, name)
        setattr(owner, name, value)
        found.append(fingerprint(bilm))
        setattr(owner, name, before)
    assert len(set(found)) == len(found)
    assert fingerprint(bilm) == found[0]


def test_tied_weights_are_told_apart_by_what_they_are_tied_to():
    lstm = (bilm := random_bilm()).lstm
    found = []
    for other in (lstm.forward_layer_0, lstm.backward_layer_0):
        lstm.backward_layer_1.state_projection.weight = other.state_projection.weight
        found += fingerprint(bilm), weights_digest(bilm.requires_grad_(False))
    assert len(set(found)) == len(found)


def test_an_interrupted_comparison_is_made_again(monkeypatch):
    bilm = random_bilm().requires_grad_(False)
    before = weights_digest(bilm)
    bilm.lstm.forward_layer_0.input_linearity.weight.data.add_(0.1)
    with monkeypatch.context() as patch:
        patch.setattr(derived_module, "checksum", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            weights_digest(bilm)
    assert weights_digest(bilm) != before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_precision_have_a_fingerprint(dtype):
    assert fingerprint(random_bilm().to(dtype)) != fingerprint(random_bilm())


def test_the_same_in_another_place():
    bilm = random_bilm().requires_grad_(False)
    expected = weights_digest(bilm)
    for parameter in bilm.parameters():
        # Neither starts nor ends where eight bytes do.
        moved = torch.cat([torch.zeros(1), parameter.flatten(), torch.zeros(1)])[1:-1]
        parameter.data = moved.view_as(parameter)
    bilm.char_cnn.remember_files(bilm.char_cnn._options, "elsewhere/weights.hdf5")
    assert weights_digest(bilm) == expected
