from pathlib import Path

import pytest

from elmo_plugin.data.readers.coref import ConllCorefReader

SAMPLE = Path(__file__).parents[2] / "examples/coref"


@pytest.mark.parametrize(("split", "size"), [("train", 40), ("dev", 10), ("test", 10)])
def test_talks_of_two_speakers_and_stories(split, size):
    documents = list(ConllCorefReader(10).read(str(SAMPLE / f"{split}.gold_conll")))
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
    first = next(iter(ConllCorefReader(10).read(str(SAMPLE / "train.gold_conll"))))
    metadata = first["metadata"].metadata
    owner = {mention: n for n, cluster in enumerate(metadata["clusters"]) for mention in cluster}
    found = {
        (metadata["speakers"][i], owner.get((i, i)))
        for i, word in enumerate(metadata["original_text"])
        if word in ("I", "me", "you")
    }
    assert len({speaker for speaker, _ in found}) == 2
