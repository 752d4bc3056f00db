"""Gold labels that training never saw: wrong, counted, and warned of once."""

import gc
import logging

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Token, Vocabulary
from allennlp.data.dataset_readers.dataset_utils import bio_tags_to_spans
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.gold_labels import (
    GoldLabelField,
    GoldTagsField,
    allow_unseen,
    label_id,
    prefix_and_type,
    type_number,
)
from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.data.readers.srl import SrlReader
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader
from tests.models.tasks import DATA, bcn, build, esim, instances, ner, srl, tensors


def with_gold(params, gold, row=0):
    """An instance of a task with other gold annotation, in the fields that readers give it."""
    instance = instances(params)[row]
    if "label" in instance.fields:
        instance.fields["label"] = GoldLabelField(gold)
    else:
        instance.fields["tags"] = GoldTagsField(gold.split(), instance["tokens"])
        instance["metadata"].metadata["gold_tags"] = gold.split()
    return instance


INDEXERS = {"tokens": SingleIdTokenIndexer()}


def vocabulary():
    vocab = Vocabulary(non_padded_namespaces=["labels"])
    for label in ("O", "B-PER"):
        vocab.add_token_to_namespace(label, "labels")
    return vocab


def test_ids_tell_prefix_and_type():
    vocab = vocabulary()
    allow_unseen(vocab, "labels")
    found = {
        label: label_id(label, vocab, "labels") for label in ("B-R-X", "I-R-X", "U-PER", "odd")
    }
    assert len(set(found.values())) == 4
    assert all(number < -100 for number in found.values())
    assert torch.tensor(list(found.values())).tolist() == list(found.values())
    assert prefix_and_type(found["B-R-X"]) == ("B", type_number("R-X"))
    assert prefix_and_type(found["I-R-X"]) == ("I", type_number("R-X"))
    assert prefix_and_type(found["U-PER"]) == ("U", type_number("PER"))
    assert prefix_and_type(found["odd"])[0] == ""
    assert label_id("B-PER", vocab, "labels") == 1


def test_models_that_say_nothing_keep_allennlps_error():
    vocab = vocabulary()
    for field in (
        GoldLabelField("B-LOC"),
        GoldTagsField(["B-LOC"], TextField([Token("a")], INDEXERS)),
    ):
        with pytest.raises(KeyError, match="B-LOC"):
            field.index(vocab)


def test_readers_give_such_fields(tmp_path):
    words = [Token("a"), Token("b")]
    for instance, name in (
        (Conll2003DatasetReader().text_to_instance(words, ner_tags=["O", "O"]), "tags"),
        (SrlReader().text_to_instance(words, [0, 1], ["O", "B-V"]), "tags"),
        (SnliReader(WhitespaceTokenizer()).text_to_instance("a b", "a", "neutral"), "label"),
        (StanfordSentimentTreeBankDatasetReader().text_to_instance(["a"], "2"), "label"),
    ):
        assert isinstance(instance[name], (GoldLabelField, GoldTagsField))


def ner_instances(*sentences):
    reader = Conll2003DatasetReader(INDEXERS)
    made = [
        reader.text_to_instance([Token(word) for word in words.split()], ner_tags=tags.split())
        for words, tags in sentences
    ]
    for instance in made:
        reader.apply_token_indexers(instance)
    return made


# A type of its own, one that is known under other prefixes, and two spans in a row.
UNSEEN = [
    ("Bo saw Mars in Rome .", "U-PER O U-PLANET O U-LOC O"),
    ("The New York Mets", "O B-ORG I-ORG L-ORG"),
    ("Rome Mars", "U-MISC U-PLANET"),
]


def test_ner_scores_are_those_of_the_tags(caplog):
    model = build(ner(label_encoding="BIOUL", verbose_metrics=True))
    sentences = [*DATA["crf_tagger"], *UNSEEN]
    output = model(**tensors(model, ner_instances(*sentences)))
    predicted = model.make_output_human_readable(dict(output))["tags"]
    letters = {"U": "B", "L": "I"}
    counts = [0, 0, 0]
    for (_, gold), tags in zip(sentences, predicted, strict=True):
        gold_chunks, chunks = (
            set(bio_tags_to_spans([letters.get(t[0], t[0]) + t[1:] for t in one]))
            for one in (gold.split(), tags)
        )
        for index, found in enumerate((gold_chunks & chunks, chunks, gold_chunks)):
            counts[index] += len(found)
    with caplog.at_level(logging.WARNING):
        metrics = model.get_metrics(reset=True)
    assert metrics["precision-overall"] == pytest.approx(counts[0] / counts[1])
    assert metrics["recall-overall"] == pytest.approx(counts[0] / counts[2])
    assert metrics["recall-unseen"] == 0
    assert "6 gold labels (5 different: " in caplog.text
    assert "U-PLANET" in caplog.text
    alone = model(**tensors(model, ner_instances(*DATA["crf_tagger"])))
    assert output["loss"].item() == pytest.approx(alone["loss"].item(), rel=1e-5)


def test_verbose_metrics_leave_them_out():
    model = build(ner(verbose_metrics=True))
    chosen = ner_instances(*DATA["crf_tagger"], *UNSEEN)
    found = model(**tensors(model, chosen))["tags"]
    gold = [sentence["tags"].labels for sentence in chosen]
    names = model.vocab.get_index_to_token_vocabulary("labels")
    metrics = model.get_metrics(reset=True)
    for tag in names.values():
        pairs = [
            (names[one] == tag, other == tag)
            for path, tags in zip(found, gold, strict=True)
            for one, other in zip(path, tags, strict=True)
            if other in names.values()
        ]
        predicted = sum(one for one, _ in pairs)
        expected = sum(one and other for one, other in pairs) / predicted if predicted else 0.0
        assert metrics[f"{tag}-precision"] == pytest.approx(expected), tag


def test_ner_without_one_sentence_of_seen_tags():
    """There is a loss, since AllenNLP's `evaluate` refuses a model that sometimes has none."""
    model = build(ner(label_encoding="BIOUL"))
    assert model(**tensors(model, ner_instances(*UNSEEN)))["loss"] == 0


def test_srl(caplog):
    model = build(srl()).double()
    model.tag_projection_layer._module.bias.data[model.vocab.get_token_index("O", "labels")] += 3

    def run(tags):
        output = model.forward_on_instances([with_gold(srl(), tags, row=4)])[0]
        return output, model.get_metrics(reset=True)

    tags = run("O B-V O O O O")[0]["tags"]
    seen = " ".join(tags)
    # The gold is what was predicted, and one argument more, of a role that training never saw.
    free = tags.index("O")
    unseen = " ".join([*tags[:free], "B-R-ARGM-DIR", *tags[free + 1 :]])
    spans = sum(tag[0] == "B" and tag != "B-V" for tag in tags)
    assert run(seen)[1]["recall-overall"] == 1
    with caplog.at_level(logging.WARNING):
        output, metrics = run(unseen)
    assert metrics["precision-overall"] == 1
    assert metrics["recall-overall"] == pytest.approx(spans / (spans + 1))
    assert torch.isfinite(torch.tensor(float(output["loss"])))
    assert caplog.text.count("gold labels") == 1
    assert "1 gold labels (1 different: B-R-ARGM-DIR)" in caplog.text


@pytest.mark.parametrize("params", [esim(), bcn()], ids=["esim", "bcn"])
def test_classifiers(params, caplog):
    model = build(params)
    best = model.forward_on_instances([with_gold(params, "9")])[0]["label"]
    model.get_metrics(reset=True)
    seen, unseen = with_gold(params, best), with_gold(params, "9")
    alone = model.forward_on_instances([seen])[0]["loss"]
    assert model.get_metrics(reset=True)["accuracy"] == 1
    with caplog.at_level(logging.WARNING):
        both = model(**tensors(model, [seen, unseen]))
        assert model.get_metrics(reset=True)["accuracy"] == 0.5
    assert both["loss"].item() == pytest.approx(float(alone), rel=1e-5)
    assert "1 gold labels (1 different: 9)" in caplog.text
    model.train()
    with pytest.raises(ConfigurationError, match="the label '9' in training"):
        model.forward_on_instances([unseen])


def test_prediction_warns_too_which_asks_for_no_metrics(caplog):
    model = build(ner(label_encoding="BIOUL"))
    with caplog.at_level(logging.WARNING):
        model.forward_on_instances(ner_instances(*UNSEEN))
        assert "gold labels" not in caplog.text
        del model
        gc.collect()
    assert caplog.text.count("6 gold labels") == 1


@pytest.mark.parametrize(
    ("params", "gold", "row"),
    [
        (esim(), "new", 0),
        (bcn(), "new", 0),
        (ner(label_encoding="BIOUL"), "U-NEW", 1),
        (srl(), "B-NEW O", 2),
    ],
    ids=["esim", "bcn", "ner", "srl"],
)
def test_labels_that_the_vocabulary_gets_later_count_as_unseen(params, gold, row, caplog):
    """As `evaluate --extend-vocab` adds them."""
    model = build(params)
    chosen = [with_gold(params, gold, row), with_gold(params, DATA[params["type"]][-1][-1], -1)]
    before = model.vocab.get_vocab_size("labels")
    model.vocab.extend_from_instances(chosen)
    model.extend_embedder_vocab()
    assert model.vocab.get_vocab_size("labels") == before + 1
    batch = tensors(model, chosen)
    output = model.make_output_human_readable(model(**batch))
    assert torch.isfinite(output["loss"])
    with caplog.at_level(logging.WARNING):
        model.get_metrics(reset=True)
    assert "training never saw them" in caplog.text
    with pytest.raises(ConfigurationError, match="no new labels for a model from an archive"):
        model.train()(**batch)
