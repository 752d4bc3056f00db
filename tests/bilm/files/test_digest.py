from unittest.mock import Mock

import pytest
import torch
from tiny_bilm import random_bilm
from torch.nn.utils import prune

from elmo_plugin.bilm.files import digest as digest_module
from elmo_plugin.bilm.files.digest import NUM_COLUMNS, WeightsDigest, fingerprint


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
def test_a_change_without_a_sign_is_seen_once_there_is_doubt(change, shape):
    bilm, digest = random_bilm().requires_grad_(False), WeightsDigest()
    weight = torch.randn(shape)
    weight[0, 0] = 0.0
    bilm.extra = torch.nn.Parameter(weight, requires_grad=False)
    before = digest.of(bilm)
    assert digest.of(bilm) is before
    digest.recheck()
    assert digest.of(bilm) is before  # it was not taken again
    change(bilm.extra.data)
    assert digest.of(bilm) is before
    digest.recheck()
    after = digest.of(bilm)
    assert after != before
    assert after == WeightsDigest().of(bilm)
    assert digest.of(bilm) is after


def test_a_change_with_a_sign_is_seen_at_once():
    bilm, digest = random_bilm().requires_grad_(False), WeightsDigest()
    found = [digest.of(bilm)]
    bilm.lstm.forward_layer_0.input_linearity.weight.add_(0.1)
    found.append(digest.of(bilm))
    bilm.state = "primed"
    found.append(digest.of(bilm))
    bilm.lstm.forward_layer_0.dtype = "int8"
    found.append(digest.of(bilm))
    bilm.register_parameter("extra", torch.nn.Parameter(torch.zeros(2, 3)))
    found.append(digest.of(bilm))
    bilm.extra = torch.nn.Parameter(torch.zeros(3, 2))
    found.append(digest.of(bilm))
    assert len(set(found)) == len(found)


def test_a_changed_mask_or_clip_is_seen_at_once():
    bilm, digest = random_bilm().requires_grad_(False), WeightsDigest()
    cell = bilm.lstm.forward_layer_0
    found = []
    for amount in (0.1, 0.5):  # pruning changes a buffer, and no parameter
        prune.l1_unstructured(cell.input_linearity, "weight", amount)
        found.append((digest.of(bilm), fingerprint(bilm)))
    assert len({one for one, _ in found}) == len({other for _, other in found}) == 2
    cell.cell_clip = 0.1
    assert digest.of(bilm) not in [one for one, _ in found]


def test_an_interrupted_comparison_is_made_again(monkeypatch):
    bilm, digest = random_bilm().requires_grad_(False), WeightsDigest()
    before = digest.of(bilm)
    bilm.lstm.forward_layer_0.input_linearity.weight.data.add_(0.1)
    digest.recheck()
    with monkeypatch.context() as patch:
        patch.setattr(digest_module, "_sums", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            digest.of(bilm)
    assert digest.of(bilm) != before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_precision_have_a_fingerprint(dtype):
    assert fingerprint(random_bilm().to(dtype)) != fingerprint(random_bilm())


def test_the_same_in_another_place():
    bilm = random_bilm().requires_grad_(False)
    expected = WeightsDigest().of(bilm)
    for parameter in bilm.parameters():
        # Neither starts nor ends where eight bytes do.
        moved = torch.cat([torch.zeros(1), parameter.flatten(), torch.zeros(1)])[1:-1]
        parameter.data = moved.view_as(parameter)
    digest = WeightsDigest()
    assert digest.of(bilm) == expected
    digest.recheck()
    assert digest.of(bilm) == expected
