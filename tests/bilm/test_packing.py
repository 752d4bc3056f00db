import torch

from elmo_plugin.bilm.packing import Packing


def test_by_hand():
    """Rows of 1, 3 and 0 tokens in a batch padded to 4 tokens, 6 positions with boundaries."""
    packing = Packing(torch.tensor([1, 3, 0]), 6)
    assert packing.lengths.tolist() == [3, 5, 2]
    assert packing.mask.tolist() == [
        [True] * 3 + [False] * 3,
        [True] * 5 + [False],
        [True] * 2 + [False] * 4,
    ]
    assert packing.order.tolist() == [1, 0, 2]
    assert packing.unsorted.tolist() == [1, 0, 2]
    # The fourth position has one sentence left, the sixth none.
    assert packing.batch_sizes == [3, 3, 2, 1, 1]
    # Row 1 begins at place 6 of the flattened batch, row 0 at 0, row 2 at 12.
    assert packing.forward_rows.tolist() == [6, 0, 12, 7, 1, 13, 8, 2, 9, 10]
    assert packing.backward_rows.tolist() == [10, 2, 13, 9, 1, 12, 8, 0, 7, 6]


def test_pad_by_hand():
    packing = Packing(torch.tensor([0, 1]), 4)
    assert packing.batch_sizes == [2, 2, 1]
    packed = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    forward = [[2.0, 4.0, 0.0, 0.0], [1.0, 3.0, 5.0, 0.0]]
    assert packing.pad(packed).squeeze(-1).tolist() == forward
    backward = [[4.0, 2.0, 0.0, 0.0], [5.0, 3.0, 1.0, 0.0]]
    assert packing.pad(packed, packing.backward_rows).squeeze(-1).tolist() == backward


def test_sentences_of_one_length_keep_their_order():
    packing = Packing(torch.tensor([2, 2, 2]), 4)
    assert packing.order.tolist() == [0, 1, 2]
    assert packing.forward_rows[:3].tolist() == [0, 4, 8]


def test_padding_a_packed_batch_gives_it_back():
    generator = torch.Generator().manual_seed(2)
    for batch_size in (1, 2, 7):
        num_tokens = torch.randint(0, 9, (batch_size,), generator=generator)
        packing = Packing(num_tokens, 11)
        padded = torch.randn(batch_size, 11, 3, generator=generator)
        padded[~packing.mask] = 0.0
        for rows in (packing.forward_rows, packing.backward_rows):
            packed = padded.flatten(0, 1)[rows]
            assert len(packed) == sum(packing.batch_sizes) == int(packing.lengths.sum())
            assert torch.equal(packing.pad(packed, rows), padded)
        assert sorted(packing.batch_sizes, reverse=True) == packing.batch_sizes
        assert torch.equal(packing.order[packing.unsorted], torch.arange(batch_size))


def test_no_sentences():
    packing = Packing(torch.zeros(0, dtype=torch.long), 2)
    assert packing.batch_sizes == []
    assert packing.pad(torch.zeros(0, 3)).shape == (0, 2, 3)
