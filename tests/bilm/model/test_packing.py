import torch

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.model.packing import Packing

# Three sentences of 3, 5 and 2 tokens in a batch of six positions.
LENGTHS = torch.tensor([3, 5, 2])


def places(packing, direction, batch_size=3, num_steps=6):
    """Index in the flattened padded batch of each packed row."""
    numbers = torch.arange(batch_size * num_steps).view(batch_size, num_steps, 1)
    return packing.pack(numbers, direction).flatten().tolist()


def test_packed_order_by_hand():
    packing = Packing(LENGTHS, 6)
    # At the third step the shortest sentence has ended; at the sixth all have.
    assert packing.batch_sizes == [3, 3, 2, 1, 1]
    # Sentence 1 starts at 6 in the flattened batch, sentence 0 at 0, sentence 2 at 12.
    assert places(packing, "forward") == [6, 0, 12, 7, 1, 13, 8, 2, 9, 10]
    assert places(packing, "backward") == [10, 2, 13, 9, 1, 12, 8, 0, 7, 6]


def test_one_sentence_keeps_its_order():
    packing = Packing(torch.tensor([3]), 4)
    assert packing.batch_sizes == [1, 1, 1]
    assert places(packing, "forward", 1, 4) == [0, 1, 2]
    assert places(packing, "backward", 1, 4) == [2, 1, 0]


def test_unpacked_rows_are_where_they_were_and_padding_is_zero():
    generator = torch.Generator().manual_seed(2)
    for batch_size in (1, 2, 7):
        lengths = torch.randint(2, 11, (batch_size,), generator=generator)
        mask = torch.arange(11) < lengths.unsqueeze(1)
        padded = torch.rand(batch_size, 11, 3, generator=generator)
        packing = Packing(lengths, 11)
        assert sum(packing.batch_sizes) == mask.sum()
        assert sorted(packing.batch_sizes, reverse=True) == packing.batch_sizes
        rows = {one: packing.pack(padded, one) for one in ("forward", "backward")}
        expected = torch.cat([padded, padded], dim=-1) * mask.unsqueeze(-1)
        assert torch.equal(packing.unpack(**rows), expected)


def test_state_is_sorted_with_the_sentences_and_back():
    lstm_state = LstmState(torch.arange(6.0).view(2, 3, 1), torch.arange(12.0).view(2, 3, 2))
    packing = Packing(LENGTHS, 6)
    in_packed_order = packing.sort(lstm_state)
    assert in_packed_order.hidden[0, :, 0].tolist() == [1, 0, 2]
    for one, other in zip(packing.unsort(in_packed_order), lstm_state, strict=True):
        assert torch.equal(one, other)


def test_no_sentences():
    packing = Packing(torch.zeros(0, dtype=torch.long), 2)
    assert packing.batch_sizes == []
    assert packing.unpack(backward=torch.zeros(0, 3)).shape == (0, 2, 3)
