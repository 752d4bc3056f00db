"""`ElmoEmbedder`: AllenNLP 0.9's five methods, its shapes, and its numbers."""

import io
import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy
import pytest
import torch
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries

import elmo_plugin
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from tests.cases import first_quick
from tests.tiny_bilm import BATCHES, OPTIONS


def test_carry_equals_allennlp_batch_after_batch(files):
    """What 0.9's `batch_to_embeddings` did, by AllenNLP 2.10.1's own parts."""
    ours, theirs = ElmoEmbedder(*files, state="carry"), _ElmoBiLm(*files)
    for batch in BATCHES:
        layers, mask = ours.batch_to_embeddings(batch)
        output = theirs(batch_to_ids(batch))
        for layer, expected in zip(layers.unbind(1), output["activations"], strict=True):
            expected = remove_sentence_boundaries(expected, output["mask"])
            torch.testing.assert_close((layer, mask), expected, atol=1e-5, rtol=1e-5)


def test_every_method_gives_the_same_vectors_when_primed(files, tmp_path):
    embedder = ElmoEmbedder(*files)
    batch = BATCHES[2]
    layers, mask = embedder.batch_to_embeddings(batch)
    assert layers.shape == (5, 3, 5, 12)
    assert mask.sum(dim=1).tolist() == [len(sentence) for sentence in batch]
    embedder.embed_file(io.StringIO("\n".join(map(" ".join, batch))), str(tmp_path / "out.hdf5"))
    with h5py.File(tmp_path / "out.hdf5") as file:
        written = [file[str(index)][...] for index in range(len(batch))]
        assert json.loads(file["sentence_to_index"][0])["The end of the day"] == "1"
    for results in (
        embedder.embed_batch(batch),
        list(embedder.embed_sentences(iter(batch), batch_size=2)),
        [embedder.embed_sentence(sentence) for sentence in batch],
        written,
    ):
        assert len(results) == len(batch)
        for index, (result, sentence) in enumerate(zip(results, batch)):
            assert result.shape == (3, len(sentence), 12)
            assert result.dtype == numpy.float32
            expected = layers[index, :, : len(sentence)].numpy()
            numpy.testing.assert_allclose(result, expected, atol=1e-6, rtol=1e-5)


def test_embed_file_in_carry_is_embed_sentences_in_carry(files, tmp_path):
    sentences = [sentence for batch in BATCHES for sentence in batch]
    for batch_size in (2, 64):
        expected = list(ElmoEmbedder(*files, state="carry").embed_sentences(sentences, batch_size))
        ElmoEmbedder(*files, state="carry").embed_file(
            io.StringIO("\n".join(map(" ".join, sentences))),
            tmp_path / "out.hdf5",
            output_format="top",
            batch_size=batch_size,
        )
        with h5py.File(tmp_path / "out.hdf5") as file:
            for index, vectors in enumerate(expected):
                numpy.testing.assert_allclose(file[str(index)], vectors[-1], atol=1e-6, rtol=1e-5)


def test_empty_sentences_have_the_shape_of_the_model(files):
    embedder = ElmoEmbedder(*files, state="carry")
    assert embedder.embed_sentence([]).shape == (3, 0, 12)
    assert embedder.elmo_bilm.carried is None
    shapes = [vectors.shape for vectors in embedder.embed_batch([[], ["a"], []])]
    assert shapes == [(3, 0, 12), (3, 1, 12), (3, 0, 12)]
    assert embedder.embed_batch([]) == []
    assert list(embedder.embed_sentences([])) == []


def test_the_embedded_bilm_is_the_default_and_is_named_on_stderr(files, capsys):
    ElmoEmbedder(*files)
    assert capsys.readouterr().err == ""
    vectors = elmo_plugin.ElmoEmbedder().embed_sentence(["Miss", "Eyre", "left", "Lowton"])
    assert vectors.shape[:2] == (3, 4)
    assert "ElmoEmbedder: no options_file and weight_file given" in capsys.readouterr().err
    elmo_plugin.ElmoHub()
    assert "ElmoHub: no options_file and weight_file given" in capsys.readouterr().err


def test_loaded_in_inference_mode_it_gives_the_same(files):
    with torch.inference_mode():
        inside = ElmoEmbedder(*files)
        found = inside.embed_sentence(["a", "b"])
    for embedder in (inside, ElmoEmbedder(*files)):
        assert (found == embedder.embed_sentence(["a", "b"])).all()


def test_a_tokenizer_lets_strings_in(files):
    embedder = ElmoEmbedder(*files, tokenizer=str.split)
    expected = ElmoEmbedder(*files).embed_batch([["The", "cat"], ["Dogs"]])
    for found in (
        embedder.embed_batch(["The cat", "Dogs"]),
        list(embedder.embed_sentences(iter(["The cat", ["Dogs"]]))),
        [embedder.embed_sentence("The cat"), embedder.embed_sentence("Dogs")],
    ):
        assert all(numpy.allclose(*pair, atol=1e-6) for pair in zip(found, expected, strict=True))
    with pytest.raises(ValueError, match=r"sentence 1 is None, expected .* tokens or a string"):
        embedder.embed_batch(["The cat", None])


def test_sentence_vectors_are_pooled_over_real_tokens(files):
    embedder = ElmoEmbedder(*files)
    sentences = [["The", "cat", "sat"], [], ["Dogs"]]
    for pooling, function in (("mean", numpy.mean), ("max", numpy.max)):
        vectors = embedder.sentence_vectors(iter(sentences), pooling, batch_size=2)
        assert vectors.shape == (3, 12)
        assert vectors.dtype == numpy.float32
        layers = embedder.embed_sentence(sentences[0])
        numpy.testing.assert_allclose(vectors[0], function(layers.mean(axis=0), axis=0), atol=1e-6)
        assert not vectors[1].any()
    assert embedder.sentence_vectors([]).shape == (0, 12)


def test_texts_are_split_and_pooled_over_chosen_layers(files):
    embedder = ElmoEmbedder(*files)
    layers = embedder.embed_sentence(["The", "cat", "sat"])
    for chosen, expected in ((None, layers), ([2], layers[2:]), ((0, 1), layers[:2])):
        for text in ("The cat  sat", ["The", "cat", "sat"]):
            vectors = embedder.embed_texts([text, ""], pooling="max", layers=chosen)
            numpy.testing.assert_allclose(vectors[0], expected.mean(axis=0).max(axis=0), atol=1e-6)
            assert not vectors[1].any()
    split = ElmoEmbedder(*files, tokenizer=lambda text: text.split("-"))
    numpy.testing.assert_allclose(
        split.embed_texts(["The-cat-sat"]), embedder.embed_texts(["The cat sat"]), atol=1e-6
    )
    for wrong in ([3], [-1], []):
        with pytest.raises(ValueError, match=r"expected numbers from 0 to 2"):
            embedder.embed_texts(["a"], layers=wrong)


def test_the_repr_names_bilm_width_and_state(files):
    assert repr(ElmoEmbedder()) == "ElmoEmbedder('embedded', embedding_dim=512, state='primed')"
    found = repr(ElmoEmbedder(*files, state="reset"))
    assert found == f"ElmoEmbedder({files.options!r}, embedding_dim=12, state='reset')"


def test_progress_counts_sentences(files, capsys):
    list(ElmoEmbedder(*files).embed_sentences([["a"]] * 5, batch_size=2, progress=True))
    assert "5/5" in capsys.readouterr().err


def test_a_cache_runs_the_bilm_once_on_each_sentence(files, monkeypatch):
    embedder = ElmoEmbedder(*files, cache="memory")
    first = embedder.embed_batch([["a", "b"], ["c"]])
    monkeypatch.setattr(BiLm, "run", lambda *_: 1 / 0)
    again = embedder.embed_batch([["c"], ["a", "b"]])
    assert numpy.array_equal(again[0], first[1])
    assert numpy.array_equal(again[1], first[0])


def test_float16_that_has_no_effect_is_said(files, caplog, monkeypatch):
    """The embedded biLM is so small that float16 would not be faster."""
    sentence = ["The", "cat", "sat", "on", "the", "mat"]
    exact = ElmoEmbedder("embedded").embed_sentence(sentence)
    assert "float16" not in caplog.text
    half = ElmoEmbedder("embedded", dtype="float16").embed_sentence(sentence)
    assert "dtype 'float16' has no effect on the CPU for this biLM" in caplog.text
    numpy.testing.assert_allclose(half, exact, atol=1e-6)
    caplog.clear()
    assert abs(ElmoEmbedder("embedded", dtype="int8").embed_sentence(sentence) - exact).max() > 1e-4
    monkeypatch.setattr("elmo_plugin.bilm.files.load.LEAST_HALVED", 1)
    ElmoEmbedder(*files, dtype="float16")
    assert caplog.text == ""


def test_float16_that_has_an_effect_on_the_highways_alone_is_no_warning(caplog):
    """As in the Small biLM, whose LSTM is small."""
    load_bilm(options_dict(replace(OPTIONS, filters=((1, 1024),))), dtype="float16")
    assert caplog.text == ""
    load_bilm(options_dict(replace(OPTIONS, filters=((1, 1023),))), dtype="float16")
    assert "dtype 'float16' has no effect" in caplog.text


@first_quick("state", ["primed", "reset"])
def test_a_sentence_has_the_same_bits_alone_and_in_any_batch(state):
    """Tokens are not remembered from one run to the other."""
    if library.variant() is None:
        pytest.skip("no library of kernels")
    text = Path(__file__).parents[3] / "examples" / "text" / "heldout.txt"
    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines()[:40]]
    embedder = ElmoEmbedder("embedded", state=state)
    alone = list(embedder.embed_sentences(sentences, batch_size=1))
    for batch_size in (2, 7, 40):
        embedder.elmo_bilm.forget_derived()
        found = embedder.embed_sentences(sentences, batch_size=batch_size)
        for ours, theirs in zip(found, alone, strict=True):
            assert numpy.array_equal(ours, theirs)
