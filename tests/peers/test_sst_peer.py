"""`sst_tokens` reads what allennlp-models' reader reads."""

import random
from pathlib import Path

import pytest

from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader, parse_tree

stock = pytest.importorskip(
    "allennlp_models.classification",
    reason="allennlp-models is not installed; `make peers` installs it apart",
).StanfordSentimentTreeBankDatasetReader
Tree = pytest.importorskip("nltk.tree").Tree
pytestmark = pytest.mark.peers

TREES = Path(__file__).parents[2] / "examples/sst/dev.txt"


def contents(instances):
    return [
        ([token.text for token in instance["tokens"]], instance["label"].label)
        for instance in instances
    ]


@pytest.mark.parametrize("use_subtrees", [False, True])
@pytest.mark.parametrize("granularity", ["5-class", "3-class", "2-class"])
def test_instances_are_the_same(use_subtrees, granularity):
    arguments = {"use_subtrees": use_subtrees, "granularity": granularity}
    expected = contents(stock(**arguments).read(str(TREES)))
    found = contents(StanfordSentimentTreeBankDatasetReader(**arguments).read(str(TREES)))
    assert len(expected) > 100 - 40 * (granularity == "2-class")
    assert found == expected


def test_what_our_parser_takes_nltk_takes_too_and_reads_the_same():
    rng = random.Random(0)
    taken = 0
    for line in TREES.read_text(encoding="utf-8").splitlines():
        for _ in range(20):
            symbols = list(line)
            for _ in range(rng.randrange(3)):
                symbols[rng.randrange(len(symbols))] = rng.choice("() x3\u00a0")
            text = "".join(symbols)
            try:
                tokens, phrases = parse_tree(text)
            except ValueError:
                continue
            taken += 1
            tree = Tree.fromstring(text)
            assert tree.leaves() == tokens
            assert [(s.label(), s.leaves()) for s in tree.subtrees()] == [
                (phrase.label, tokens[phrase.start : phrase.end]) for phrase in phrases
            ]
    assert taken > 800
