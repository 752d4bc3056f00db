"""The sample data is what its generators write, and has what the tasks' models can learn from."""

import runpy
from collections import Counter
from pathlib import Path

import pytest
from allennlp.data.dataset_readers.dataset_utils import bioul_tags_to_spans
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from elmo_plugin.data.readers.coref import ConllCorefReader
from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.data.readers.squad import read_questions
from elmo_plugin.data.readers.srl import SrlReader
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("task", ["coref", "ner", "snli", "squad", "srl", "sst", "text"])
def test_the_generator_writes_the_committed_files(task):
    files = runpy.run_path(str(EXAMPLES / task / "make.py"))["make"]()
    assert len(files) == (2 if task == "text" else 3)
    for name, text in files.items():
        assert (EXAMPLES / task / name).read_text(encoding="utf-8") == text
    lines = [line for text in files.values() for line in text.splitlines()]
    assert task not in ("snli", "sst") or len(set(lines)) == len(lines) > 600


@pytest.mark.parametrize(
    ("reader", "path", "labels", "least"),
    [
        (
            SnliReader(tokenizer=WhitespaceTokenizer()),
            "snli/train.jsonl",
            ["contradiction", "entailment", "neutral"],
            100,
        ),
        *(
            (StanfordSentimentTreeBankDatasetReader(use_subtrees=one), "sst/train.txt", "01234", 40)
            for one in (False, True)
        ),
    ],
)
def test_classes_are_about_equally_frequent(reader, path, labels, least):
    found = Counter(instance["label"].label for instance in reader.read(str(EXAMPLES / path)))
    assert sorted(found) == list(labels)
    assert min(found.values()) > least


def test_names_of_each_type_stand_in_one_split_alone():
    names = {}
    for split, size in (("train", 450), ("dev", 100), ("test", 150)):
        reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
        instances = list(reader.read(EXAMPLES / "ner" / f"{split}.txt"))
        assert len(instances) == size
        entities = [
            (kind, " ".join(instance["metadata"]["words"][start : end + 1]))
            for instance in instances
            for kind, (start, end) in bioul_tags_to_spans(instance["tags"].labels)
        ]
        types = Counter(kind for kind, _ in entities)
        assert sorted(types) == ["LOC", "MISC", "ORG", "PER"]
        assert min(types.values()) >= 10
        names[split] = {name.title() for _, name in entities}
    assert len(set.union(*names.values())) == sum(map(len, names.values()))


@pytest.mark.parametrize(("split", "size"), [("train", 40), ("dev", 10), ("test", 10)])
def test_coref_has_talks_of_two_speakers_and_stories(split, size):
    documents = list(ConllCorefReader(10).read(str(EXAMPLES / f"coref/{split}.gold_conll")))
    assert len(documents) == size
    for document in documents:
        metadata = document["metadata"].metadata
        speakers = set(metadata["speakers"])
        assert len(speakers) == 2 if metadata["genre"] == "talk" else speakers == {"-"}
        assert 2 <= len(metadata["clusters"]) <= 4
        assert min(map(len, metadata["clusters"])) > 1
        # Every mention is a candidate span.
        mentions = {mention for cluster in metadata["clusters"] for mention in cluster}
        assert mentions <= {(span.span_start, span.span_end) for span in document["spans"]}


def test_the_same_word_means_another_with_another_speaker():
    first = next(iter(ConllCorefReader(10).read(str(EXAMPLES / "coref/train.gold_conll"))))
    metadata = first["metadata"].metadata
    owner = {mention: n for n, cluster in enumerate(metadata["clusters"]) for mention in cluster}
    found = {
        (metadata["speakers"][i], owner.get((i, i)))
        for i, word in enumerate(metadata["original_text"])
        if word in ("I", "me", "you")
    }
    assert len({speaker for speaker, _ in found}) == 2


def test_questions_have_answers_as_in_squad_and_the_splits_share_no_people():
    seen = {}
    for split, (number, answers) in {"train": (240, 1), "dev": (60, 3), "test": (60, 3)}.items():
        questions = list(read_questions(str(EXAMPLES / "squad" / f"{split}.json")))
        assert len(questions) == number
        assert {len(question.answer_texts) for question in questions} == {answers}
        assert len({question.id for question in questions}) == number
        seen[split] = {
            question.answer_texts[0] for question in questions if question.text.startswith("Who")
        }
        assert len(seen[split]) >= 4
    assert not seen["train"] & (seen["dev"] | seen["test"])


def test_no_sentence_of_srl_is_there_twice():
    splits = [
        {
            " ".join(one["metadata"]["words"])
            for one in SrlReader().read(str(EXAMPLES / "srl" / name))
        }
        for name in ("train", "dev", "test")
    ]
    assert [len(split) for split in splits] == [220, 60, 60]
    assert len(set.union(*splits)) == 340


def test_heldout_sentences_are_mostly_new_and_of_known_words():
    train, heldout = (
        (EXAMPLES / "text" / name).read_text().splitlines() for name in ("train.txt", "heldout.txt")
    )
    assert len(train) > 500
    assert len(set(heldout) - set(train)) > len(heldout) / 2
    known = {word for line in train for word in line.split()}
    words = [word for line in heldout for word in line.split()]
    assert sum(word in known for word in words) > 0.99 * len(words)
