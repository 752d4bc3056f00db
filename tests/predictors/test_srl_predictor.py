import json

import pytest
import spacy
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.models.archival import archive_model

from elmo_plugin.predictors.srl import SemanticRoleLabelerPredictor
from tests.cases import first_quick
from tests.models.tasks import ner
from tests.predictors.test_interpreters import predictor as task_predictor

without_model = pytest.mark.skipif(
    spacy.util.is_package("en_core_web_sm"), reason="spaCy's en_core_web_sm is installed"
)


@pytest.fixture(scope="module")
def predictor():
    return task_predictor("srl", "words", None)


def test_given_words_and_indices(predictor):
    by_word = predictor.predict_json({"sentence": "Tom sold the door.", "verbs": ["sold"]})
    assert by_word["words"] == ["Tom", "sold", "the", "door", "."]
    (frame,) = by_word["verbs"]
    assert set(frame) == {"verb", "description", "tags"}
    assert frame["verb"] == "sold"
    assert len(frame["tags"]) == 5
    assert by_word == predictor.predict_json({"sentence": "Tom sold the door.", "verbs": [1]})
    tokens = {"tokens": ["Tom", "sold", "the", "door", "."], "verbs": [1]}
    assert by_word == predictor.predict_json(tokens)
    json.dumps(by_word)


def test_every_place_of_a_word_is_a_predicate(predictor):
    found = predictor.predict_json(
        {"tokens": ["sold", "and", "sold", "sang"], "verbs": ["sold", 3]}
    )
    assert [frame["verb"] for frame in found["verbs"]] == ["sold", "sold", "sang"]


def test_batches_are_the_sentences_one_by_one(predictor):
    inputs = [
        {"sentence": "Tom sold the door.", "verbs": ["sold"]},
        {"sentence": "No verbs here", "verbs": []},
        {"tokens": ["She", "sang", "and", "slept"], "verbs": [1, 3]},
    ]
    batch = predictor.predict_batch_json(inputs)
    assert batch == [predictor.predict_json(one) for one in inputs]
    assert batch[1] == {"verbs": [], "words": ["No", "verbs", "here"]}
    assert [len(result["verbs"]) for result in batch] == [1, 0, 2]


def test_the_predicates_of_a_sentence_run_in_one_batch(predictor, monkeypatch):
    """As AllenNLP's do: with a carried state, other batches would give other vectors."""
    sizes = []
    forward = predictor._model.forward_on_instances
    monkeypatch.setattr(
        predictor._model,
        "forward_on_instances",
        lambda instances: sizes.append(len(instances)) or forward(instances),
    )
    predictor.predict_json({"tokens": ["She", "sang", "and", "slept"], "verbs": [0, 1, 3]})
    assert sizes == [3]


@without_model
def test_verbs_to_be_found_without_a_tagger_are_an_error(predictor):
    for work in (
        lambda: predictor.predict("Tom sold it."),
        lambda: predictor.predict_tokenized(["Tom", "sold", "it"]),
    ):
        with pytest.raises(ValueError, match=r"'en_core_web_sm', which finds verbs, .*\"verbs\""):
            work()


def pos_tagger(folder, tags, predicted):
    """An archive of a tagger of parts of speech that predicts one tag for every word."""
    config = {
        "dataset_reader": {"type": "conll2003", "tag_label": "pos"},
        "model": ner(),
    }
    vocab = Vocabulary(non_padded_namespaces=["labels"])
    for tag in tags:
        vocab.add_token_to_namespace(tag, "labels")
    model = Model.from_params(Params(config["model"]).duplicate(), vocab=vocab)
    model.tag_projection_layer._module.bias.data[tags.index(predicted)] = 50.0
    Params(config).to_file(str(folder / "config.json"))
    torch.save(model.state_dict(), folder / "best.th")
    vocab.save_to_files(str(folder / "vocabulary"))
    archive_model(str(folder))
    return str(folder / "model.tar.gz")


@first_quick(
    ("tag", "verbs"), [("VBD", ["Tom", "sold", "it"]), ("MD", ["Tom", "sold", "it"]), ("NN", [])]
)
def test_a_tagger_of_ones_own_finds_verbs(predictor, tmp_path, tag, verbs):
    archive = pos_tagger(tmp_path, ["NN", "VBD", "MD"], tag)
    found = SemanticRoleLabelerPredictor(
        predictor._model, predictor._dataset_reader, tagger=archive
    )
    tagged = found.predict_tokenized(["Tom", "sold", "it"])
    assert [frame["verb"] for frame in tagged["verbs"]] == verbs
    assert found.predict_json({"sentence": ""}) == {"verbs": [], "words": []}


@first_quick("content", [b"<html>", None, b"", b"\x1f\x8b\x08"])
def test_a_tagger_that_does_not_load_is_named(predictor, tmp_path, content):
    path = tmp_path / "model.tar.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"tagger: .*model.tar.gz' cannot be loaded"):
        SemanticRoleLabelerPredictor(predictor._model, predictor._dataset_reader, tagger=str(path))


def test_a_tagger_without_verbs_is_named(predictor, tmp_path):
    archive = pos_tagger(tmp_path, ["O", "B-PER"], "O")
    with pytest.raises(ConfigurationError, match=r"labels \['O', 'B-PER'\], expected parts of spe"):
        SemanticRoleLabelerPredictor(predictor._model, predictor._dataset_reader, tagger=archive)


def test_a_tagger_finds_verbs_and_auxiliaries(predictor, monkeypatch):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("attribute_ruler", name="tagger")
    for word, tag in (("sold", "VERB"), ("was", "AUX"), ("door", "NOUN")):
        ruler.add([[{"ORTH": word}]], {"POS": tag})
    monkeypatch.setattr(predictor._tokenizer, "spacy", nlp)
    found = predictor.predict("The door was sold.")
    assert [frame["verb"] for frame in found["verbs"]] == ["was", "sold"]
    assert found == predictor.predict_tokenized(["The", "door", "was", "sold", "."])
    monkeypatch.setattr(nlp, "lang", "de")
    assert [frame["verb"] for frame in predictor.predict("The door was sold.")["verbs"]] == ["sold"]


def test_no_sentences():
    assert SemanticRoleLabelerPredictor.predict_batch_json(None, []) == []


def test_a_language_that_is_not_installed_is_not_fetched(predictor, monkeypatch):
    monkeypatch.setattr(
        "allennlp.common.util.spacy_download", lambda name: pytest.fail(f"{name} is fetched")
    )
    german = SemanticRoleLabelerPredictor(
        predictor._model, predictor._dataset_reader, "de_core_news_sm"
    )
    found = german.predict_json({"sentence": "Das ist z.B. so.", "verbs": ["ist"]})
    assert found["words"] == ["Das", "ist", "z.B.", "so", "."]


def test_descriptions_by_hand():
    words = ["The", "dog", "in", "the", "yard", "barks", "now", "."]
    tags = ["B-ARG0", "I-ARG0", "I-ARG0", "I-ARG0", "I-ARG0", "B-V", "B-ARGM-TMP", "O"]
    assert SemanticRoleLabelerPredictor.make_srl_string(words, tags) == (
        "[ARG0: The dog in the yard] [V: barks] [ARGM-TMP: now] ."
    )


@pytest.mark.peers
def test_output_is_that_of_allennlp_models(predictor, monkeypatch):
    stock = pytest.importorskip("allennlp_models.structured_prediction")
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("attribute_ruler", name="tagger")
    ruler.add([[{"ORTH": "sold"}]], {"POS": "VERB"})
    theirs = stock.SemanticRoleLabelerPredictor(predictor._model, stock.SrlReader())
    monkeypatch.setattr(predictor._tokenizer, "spacy", nlp)
    monkeypatch.setattr(theirs._tokenizer, "spacy", nlp)
    inputs = [
        {"sentence": "Tom sold the door."},
        {"sentence": "Nothing."},
        {"sentence": "sold sold"},
    ]
    assert predictor.predict_batch_json(inputs) == theirs.predict_batch_json(inputs)
    assert predictor.predict("Tom sold it.") == theirs.predict("Tom sold it.")
    assert predictor.predict_tokenized(["Tom", "sold"]) == theirs.predict_tokenized(["Tom", "sold"])
