"""Context-independent vectors of a vocabulary, as AllenNLP and word2vec's readers take them."""

import copy
import gzip

import h5py
import numpy
import pytest
import torch

from elmo_plugin.bilm.use.token_vectors import read_vocabulary, with_boundaries, write_token_vectors
from tests.tiny_bilm import random_bilm

TOKENS = ["@@UNKNOWN@@", "the", "Überraschung", "x" * 60, "."]


@pytest.fixture(scope="module")
def bilm():
    return random_bilm().eval()


@pytest.fixture(scope="module")
def expected(bilm):
    """From the token layer of the whole biLM, one token a sentence."""
    with torch.no_grad():
        layer = bilm(bilm.batch_to_ids([[token] for token in TOKENS]))["activations"][0]
    return layer[:, 1, :6].numpy()


def test_text_is_a_token_and_its_numbers(tmp_path, bilm, expected, monkeypatch):
    monkeypatch.setattr("elmo_plugin.bilm.use.token_vectors.BATCH_SIZE", 2)
    write_token_vectors(bilm, TOKENS, tmp_path / "v.txt")
    lines = (tmp_path / "v.txt").read_text("utf-8").splitlines()
    assert [line.split(" ")[0] for line in lines] == TOKENS
    found = numpy.array([line.split(" ")[1:] for line in lines], dtype=numpy.float32)
    numpy.testing.assert_allclose(found, expected, atol=1e-6)
    write_token_vectors(bilm, TOKENS, tmp_path / "h.txt.gz", header=True)
    with gzip.open(tmp_path / "h.txt.gz", "rt", encoding="utf-8") as file:
        header, *rest = file.read().splitlines()
    assert header == "5 6"
    assert rest == lines
    write_token_vectors(copy.deepcopy(bilm).bfloat16(), TOKENS, tmp_path / "half.txt")
    found = numpy.loadtxt(tmp_path / "half.txt", usecols=range(1, 7), comments=None)
    numpy.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz", "header.txt", "v.hdf5"])
def test_allennlp_s_embedding_reads_it(tmp_path, bilm, expected, name):
    from allennlp.data import Vocabulary
    from allennlp.modules.token_embedders import Embedding

    vocab = Vocabulary()
    for token in TOKENS[1:]:
        vocab.add_token_to_namespace(token)
    vocab.save_to_files(tmp_path / "vocabulary")
    tokens = read_vocabulary(tmp_path / "vocabulary" / "tokens.txt")
    assert tokens == TOKENS
    path = tmp_path / name
    write_token_vectors(bilm, tokens, path, header=name.startswith("header"))
    embedding = Embedding(vocab=vocab, embedding_dim=6, pretrained_file=str(path))
    rows = [vocab.get_token_index(token) for token in TOKENS[1:]]
    numpy.testing.assert_allclose(embedding.weight[rows].detach(), expected[1:], atol=1e-6)


def test_hdf5_has_a_row_of_zeros_only_where_allennlp_wants_it(tmp_path, bilm, expected):
    write_token_vectors(bilm, TOKENS, tmp_path / "a.hdf5")
    write_token_vectors(bilm, TOKENS[1:], tmp_path / "b.h5")
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert not file["embedding"][0].any()
        numpy.testing.assert_allclose(file["embedding"][1:], expected, atol=1e-6)
    with h5py.File(tmp_path / "b.h5") as file:
        numpy.testing.assert_allclose(file["embedding"], expected[1:], atol=1e-6)


def test_boundaries_come_second_and_third_or_stay_first():
    assert with_boundaries(["@@UNKNOWN@@", "a", "</S>"]) == ["@@UNKNOWN@@", "<S>", "</S>", "a"]
    for tokens in (["<S>", "</S>", "<UNK>", "a"], ["</S>", "<S>", "a"]):
        assert with_boundaries(tokens) == ["<S>", "</S>", *tokens[2:]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocabulary is empty, expected one token a line"),
        (b"a\n\nb\n", "line 2 is empty"),
        (b"a\nb\na\n", "line 3: 'a' is on line 1 too"),
        (b"a\n\xe9\n", ":2: not UTF-8"),
    ],
)
def test_a_bad_vocabulary_is_an_error(tmp_path, content, message):
    (tmp_path / "vocabulary").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_vocabulary(tmp_path / "vocabulary")


def test_white_space_in_a_token_is_an_error_in_text_only(tmp_path, bilm):
    with pytest.raises(ValueError, match="token 2, 'New York', holds white space"):
        write_token_vectors(bilm, ["a", "New York"], tmp_path / "v.txt")
    assert list(tmp_path.iterdir()) == []
    write_token_vectors(bilm, ["a", "New York"], tmp_path / "v.hdf5")


@pytest.mark.parametrize("name", ["v.txt", "v.hdf5"])
def test_no_token_at_all_is_an_error(tmp_path, bilm, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(ValueError, match=rf"{name}: the vocabulary has 0 tokens, expected 1 or mo"):
        write_token_vectors(bilm, [], tmp_path / name)
    assert (tmp_path / name).read_text() == "precious"
