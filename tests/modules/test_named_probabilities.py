import pytest
import torch
from allennlp.data import Vocabulary

from elmo_plugin.modules.named_probabilities import named_probabilities


def test_labels_come_with_their_probabilities_the_most_probable_first():
    vocab = Vocabulary(non_padded_namespaces=["labels"])
    for label in ("bad", "good", "neither"):
        vocab.add_token_to_namespace(label, "labels")
    first, second = named_probabilities(torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]), vocab)
    assert list(first) == ["good", "neither", "bad"]
    assert first["good"] == pytest.approx(0.5)
    assert list(second) == ["bad", "neither", "good"]  # ties in the vocabulary's order
    assert named_probabilities(torch.tensor([0.0, 1.0, 0.0]), vocab)[0]["good"] == 1.0
