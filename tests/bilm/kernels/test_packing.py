import torch

from elmo_plugin.bilm.kernels.packing import pack


def test_by_hand():
    """Rows of 1, 3 and 0 tokens in a batch padded to 4 tokens, 6 positions with boundaries."""
    (packing,) = pack(torch.tensor([3, 5, 2]), 6, 3)
    assert packing.order.tolist() == [1, 0, 2]
    # The fourth position has one sentence left, the sixth none.
    assert packing.batch_sizes == [3, 3, 2, 1, 1]
    # Row 1 begins at place 6 of the flattened batch, row 0 at 0, row 2 at 12.
    assert packing.forward_rows.tolist() == [6, 0, 12, 7, 1, 13, 8, 2, 9, 10]
    assert packing.backward_rows.tolist() == [10, 2, 13, 9, 1, 12, 8, 0, 7, 6]


def test_sentences_of_similar_length_are_packed_together_by_hand():
    first, second = pack(torch.tensor([3, 5, 2]), 6, 2)
    assert first.order.tolist() == [1, 0]
    assert first.batch_sizes == [2, 2, 2, 1, 1]
    assert first.forward_rows.tolist() == [6, 0, 7, 1, 8, 2, 9, 10]
    assert first.backward_rows.tolist() == [10, 2, 9, 1, 8, 0, 7, 6]
    assert second.order.tolist() == [2]
    assert second.forward_rows.tolist() == [12, 13]


def test_parts_by_hand():
    (packing,) = pack(torch.tensor([3, 5, 2]), 6, 3)  # steps of 3, 3, 2, 1, 1 rows
    assert list(packing.parts(5)) == [
        (slice(0, 3), [3]),
        (slice(3, 8), [3, 2]),
        (slice(8, 10), [1, 1]),
    ]
    assert list(packing.parts(10)) == [(slice(0, 10), [3, 3, 2, 1, 1])]
    # A step is never cut.
    assert [sizes for _, sizes in packing.parts(1)] == [[3], [3], [2], [1], [1]]


def test_sentences_of_one_length_keep_their_order():
    (packing,) = pack(torch.tensor([4, 4, 4]), 4, 3)
    assert packing.order.tolist() == [0, 1, 2]
    assert packing.forward_rows[:3].tolist() == [0, 4, 8]


def test_every_place_is_in_one_part_of_one_packing():
    generator = torch.Generator().manual_seed(2)
    for batch_size in (1, 2, 7):
        lengths = torch.randint(2, 11, (batch_size,), generator=generator)
        mask = torch.arange(11) < lengths.unsqueeze(1)
        for most_sentences in (1, 3, 7):
            packings = pack(lengths, 11, most_sentences)
            assert all(len(packing.order) <= most_sentences for packing in packings)
            assert sorted(torch.cat([p.order for p in packings]).tolist()) == [*range(batch_size)]
            for direction in ("forward_rows", "backward_rows"):
                found = []
                for packing in packings:
                    for rows, batch_sizes in packing.parts(6):
                        assert sum(batch_sizes) <= max(6, batch_sizes[0])
                        assert sorted(batch_sizes, reverse=True) == batch_sizes
                        places = getattr(packing, direction)[rows]
                        assert len(places) == sum(batch_sizes)
                        found += places.tolist()
                assert sorted(found) == mask.flatten().nonzero().squeeze(1).tolist()


def test_no_sentences():
    (packing,) = pack(torch.zeros(0, dtype=torch.long), 2, 4)
    assert packing.batch_sizes == []
    assert list(packing.parts(4)) == []
