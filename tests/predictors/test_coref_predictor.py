import pytest
import spacy
from spacy.tokens import Doc

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.predictors.coref import CorefPredictor
from tests.models.coref_cases import build, config, document, reader

TEXT = "Anna saw the old cat. She fed it."
SENTENCES = [["Anna", "saw", "the", "old", "cat", "."], ["She", "fed", "it", "."]]
PAPER = {
    "encode_by_sentence": True,
    "use_speakers": True,
    "genres": ["talk", "news"],
    "num_features": 3,
}


@pytest.fixture(scope="module")
def predictor():
    one = reader().text_to_instance(**document(1))
    return CorefPredictor(build(config(**PAPER), [one]), reader())


def test_text_is_split_into_words_and_sentences(predictor):
    output = predictor.predict(TEXT)
    assert output["document"] == [word for words in SENTENCES for word in words]
    assert output["clusters"] == predictor.predict_json({"sentences": SENTENCES})["clusters"]
    assert output["clusters"]
    spans = {tuple(span) for span in output["top_spans"]}
    assert all(tuple(mention) in spans for cluster in output["clusters"] for mention in cluster)
    # No span of the first sentence reaches into the second.
    assert not any(start < 6 <= end for start, end in spans)


def test_a_spacy_model_may_be_a_folder(predictor, tmp_path):
    spacy.blank("en").to_disk(tmp_path / "model")
    model, reader = predictor._model, predictor._dataset_reader
    found = CorefPredictor(model, reader, str(tmp_path / "model"))
    assert found.predict(TEXT)["document"] == predictor.predict(TEXT)["document"]


def test_a_list_of_words(predictor):
    words = [word for words in SENTENCES for word in words]
    assert predictor.predict_tokenized(words) == predictor.predict(TEXT)


def test_speakers_and_genre(predictor):
    inputs = {"sentences": SENTENCES, "speakers": ["Ann", "Bob"], "genre": "news"}
    instance = predictor._json_to_instance(inputs)
    assert instance["metadata"]["speakers"] == ["Ann"] * 6 + ["Bob"] * 4
    assert instance["metadata"]["genre"] == "news"
    by_word = {**inputs, "speakers": [["Ann"] * 6, ["Bob"] * 4]}
    assert predictor.predict_json(by_word) == predictor.predict_json(inputs)
    documents = predictor.predict_batch_json([inputs, {"document": TEXT}])
    assert [output["document"] for output in documents] == [[*SENTENCES[0], *SENTENCES[1]]] * 2


def test_mentions_are_replaced_by_the_first_of_their_cluster():
    words = ["Anna", "fed", "her", "old", "cat", ".", "It", "saw", "the", "nice", "woman", "."]
    spaces = [True, True, True, True, False, True, True, True, True, True, False, False]
    doc = Doc(spacy.blank("en").vocab, words=words, spaces=spaces)
    found = CorefPredictor.replace_corefs(doc, [[[0, 0], [2, 2], [8, 10]], [[2, 4], [6, 6]]])
    assert found == "Anna fed Anna's old cat. her old cat saw Anna."


def test_within_a_replaced_mention_nothing_else_is():
    words = ["Mary", "met", "John", ".", "She", "left", ".", "His", "mother", "smiled", "."]
    doc = Doc(spacy.blank("en").vocab, words=words)
    clusters = [[[0, 0], [4, 4], [7, 8]], [[2, 2], [7, 7]]]
    for order in (clusters, clusters[::-1]):
        found = CorefPredictor.replace_corefs(doc, order)
        assert found == "Mary met John . Mary left . Mary smiled . "


def test_a_text_without_clusters_stays_as_it_is(predictor, monkeypatch):
    monkeypatch.setattr(predictor, "predict", lambda document: {"clusters": []})
    assert predictor.coref_resolved(TEXT) == TEXT


def test_predicted_clusters_become_labels(predictor):
    instance = predictor._json_to_instance({"document": TEXT})
    outputs = predictor._model.forward_on_instance(instance)
    labeled = predictor.predictions_to_labeled_instances(instance, outputs)
    assert len(labeled) == len(outputs["clusters"]) > 0
    for one, cluster in zip(labeled, outputs["clusters"], strict=True):
        found = {
            (span.span_start, span.span_end)
            for span, label in zip(one["spans"], one["span_labels"].labels)
            if label == 0
        }
        assert found == set(cluster)
        assert one["metadata"]["clusters"] == [cluster]
    (none,) = predictor.predictions_to_labeled_instances(instance, {"clusters": []})
    assert set(none["span_labels"].labels) == {-1}
