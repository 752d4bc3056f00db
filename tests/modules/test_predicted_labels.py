import pytest
import torch
from allennlp.data import Vocabulary

from elmo_plugin.modules.predicted_labels import add_labels


def test_labels_come_with_their_probabilities_the_most_probable_first():
    vocab = Vocabulary(non_padded_namespaces=["labels"])
    for label in ("bad", "good", "neither"):
        vocab.add_token_to_namespace(label, "labels")
    found = add_labels({}, torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]), vocab)
    first, second = found["probabilities"]
    assert found["label"] == ["good", "bad"]
    assert list(first) == ["good", "neither", "bad"]
    assert first["good"] == pytest.approx(0.5)
    assert list(second) == ["bad", "neither", "good"]  # ties in the vocabulary's order
    assert add_labels({}, torch.tensor([0.0, 1.0, 0.0]), vocab)["probabilities"][0]["good"] == 1.0
