"""A row's bits do not depend on the rows beside it, in any precision, whatever is chosen."""

import pytest
import torch
from tiny_bilm import BATCHES

from elmo_plugin.bilm.kernels import same_bits, tuning
from elmo_plugin.bilm.kernels.chooser import linear_kernel
from elmo_plugin.bilm.kernels.prepacked_linear import onednn_works
from elmo_plugin.bilm.kernels.processors import ROWS, use_processor
from elmo_plugin.bilm.kernels.same_bits import in_steady_rows, least_rows, steady_rows
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.options import ElmoOptions

DTYPES = [None, "float16", "bfloat16", "int8"]


@pytest.fixture(autouse=True)
def onednn():
    if not onednn_works("float32"):
        pytest.skip("oneDNN is not what runs")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2048, 512), (512, 2048), (48, 70), (8192, 256)])
def test_a_row_among_any_number_of_rows(dtype, shape):
    torch.manual_seed(0)
    # Sums that cancel are nothing but the rounding of their order.
    half = torch.randn(200, shape[1] // 2)
    rows = torch.cat([half, half], dim=1)
    first = torch.randn(shape[0], shape[1] // 2)
    product = linear_kernel(torch.cat([first, -first], dim=1), dtype)
    together = product(rows)
    for count in (*range(1, 40), 64, 65, 97, 130):
        assert torch.equal(product(rows[:count]), together[:count])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", ROWS)
def test_a_sentence_in_any_batch(row, dtype, monkeypatch):
    monkeypatch.setattr(tuning, "MOST_EXACT", 0)
    torch.manual_seed(3)
    options = ElmoOptions(64, 512, 2, 16, ((1, 32), (2, 32), (3, 64)), 1)
    bilm = BiLm(options, state="reset", dtype=dtype).requires_grad_(False)
    sentences = [sentence for batch in BATCHES for sentence in batch] * 5
    with use_processor(row):
        together = bilm(batch_to_ids(sentences))["activations"]
        for number, sentence in enumerate(sentences[:6]):
            for others in ([], sentences[:1], sentences[:40]):
                bilm.char_cnn.forget_token_vectors()
                alone = bilm(batch_to_ids([sentence, *others]))["activations"]
                for ours, theirs in zip(alone, together, strict=True):
                    steps = len(sentence) + 2
                    assert torch.equal(ours[0, :steps], theirs[number, :steps])


def test_which_numbers_of_rows_by_hand(monkeypatch):
    """A product that adds up in another order for fewer than 9 rows, and for 40."""
    monkeypatch.setattr(same_bits, "_least_rows", {})
    monkeypatch.setattr(same_bits, "_steady", {})

    def prepack(weight):
        def product(rows):
            found = rows @ weight.t()
            return found if len(rows) >= 9 and len(rows) != 40 else found + 1

        return product

    assert steady_rows("by hand", prepack, 5, 7) == (16, 26, 32, 48, 64)
    assert least_rows("by hand", prepack(torch.ones(5, 7)), 5, 7) == 9
    assert steady_rows("always", lambda weight: lambda rows: rows @ weight.t() * 0, 5, 7) == ()
    # Known from now on.
    assert steady_rows("by hand", None, 5, 7) == (16, 26, 32, 48, 64)


def test_the_product_is_taken_in_steady_rows():
    taken = []

    def product(rows):
        taken.append(len(rows))
        return rows * 2

    rows = torch.arange(140.0).reshape(140, 1)
    for count, expected in ((1, [16]), (16, [16]), (17, [64]), (64, [64]), (140, [64, 64, 16])):
        taken.clear()
        assert torch.equal(in_steady_rows(product, rows[:count], (16, 64)), rows[:count] * 2)
        assert taken == expected
    taken.clear()
    assert len(in_steady_rows(product, rows, ())) == 140
    assert taken == [140]


def test_sums_that_cancel_show_the_order(monkeypatch):
    """bfloat16 products that differ in the order of their sums alone are told apart."""
    monkeypatch.setattr(same_bits, "_steady", {})

    def prepack(weight):
        def product(rows):
            middle = 20 if len(rows) < 30 else 10
            parts = (slice(None, middle), slice(middle, None))
            return sum(rows[:, part] @ weight[:, part].t() for part in parts).bfloat16()

        return product

    few = [count for count in tuning.STEADY_ROWS if count < 30]
    found = steady_rows("halves", prepack, 6, 64)
    assert not set(few) & set(found)
    assert found[-1] == 64
