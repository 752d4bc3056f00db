import pytest
import torch
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.modules import TokenEmbedder

VECTORS = {"cat": [3.0, 4.0], "dog": [0.0, 0.2], "Cat": [-5.0, 0.0]}


@pytest.fixture
def embedder(tmp_path):
    path = tmp_path / "vectors.2d.txt"
    path.write_text("".join(f"{w} {v[0]} {v[1]}\n" for w, v in VECTORS.items()), encoding="utf-8")
    vocab = Vocabulary(
        {"words": {"cat": 3, "dog": 2, "Cat": 2, "bird": 1}},
        pretrained_files={"words": str(path)},
        only_include_pretrained_words=True,
    )
    params = {
        "type": "unit_length_embedding",
        "embedding_dim": 2,
        "pretrained_file": str(path),
        "vocab_namespace": "words",
        "trainable": False,
    }
    return vocab, TokenEmbedder.from_params(Params(params), vocab=vocab)


def test_vectors_have_length_1_and_unknown_words_are_0(embedder):
    vocab, embedder = embedder
    ids = [vocab.get_token_index(word, "words") for word in ("cat", "dog", "Cat", "bird")]
    found = embedder(torch.tensor([ids]))
    expected = [[[0.6, 0.8], [0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]]]
    torch.testing.assert_close(found, torch.tensor(expected))
    assert not embedder.weight.requires_grad
    assert embedder.get_output_dim() == 2
