import torch

from elmo_plugin.modules.coref.sentences import Documents, random_window


def test_a_cluster_that_shrinks_to_one_mention_leaves_the_window():
    """One that has a single mention in the document stays."""
    text = {"tokens": {"tokens": torch.arange(6).unsqueeze(0)}}
    spans = torch.tensor([[[0, 0], [1, 2], [3, 3], [4, 5]]])
    metadata = {
        "sentence_lengths": [3, 3],
        "original_text": list("abcdef"),
        "clusters": [[(0, 0), (3, 3)], [(1, 2), (0, 0)], [(1, 1)], [(4, 5)]],
    }
    documents, kept = Documents(text, spans, None, [metadata]), {}
    for seed in range(8):
        torch.manual_seed(seed)
        (window,) = random_window(documents, 1).metadata
        kept["".join(window["original_text"])] = window["clusters"]
    assert kept == {"abc": [[(1, 2), (0, 0)], [(1, 1)]], "def": [[(1, 2)]]}
