import pytest
from allennlp.data import Token
from allennlp.data.tokenizers import CharacterTokenizer

from elmo_plugin.data.readers.sst_tokens import (
    Phrase,
    StanfordSentimentTreeBankDatasetReader,
    parse_tree,
)

TREE = "(3 (2 It) (4 (4 (2 's) (4 lovely)) (2 .)))"
NEUTRAL = "(2 (2 A) (2 (1 dull) (2 film)))"


def read(path, **arguments):
    instances = StanfordSentimentTreeBankDatasetReader(**arguments).read(str(path))
    return [
        ([token.text for token in instance["tokens"]], instance["label"].label)
        for instance in instances
    ]


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text(f"{TREE}\n\n{NEUTRAL}\n", encoding="utf-8")
    return path


def test_a_tree_is_its_tokens_and_its_phrases_in_the_order_their_brackets_open():
    tokens, phrases = parse_tree(TREE)
    assert tokens == ["It", "'s", "lovely", "."]
    assert phrases == [
        Phrase("3", 0, 4),
        Phrase("2", 0, 1),
        Phrase("4", 1, 4),
        Phrase("4", 1, 3),
        Phrase("2", 1, 2),
        Phrase("4", 2, 3),
        Phrase("2", 3, 4),
    ]


def test_whole_sentences_are_read_with_their_label(treebank):
    assert read(treebank) == [(["It", "'s", "lovely", "."], "3"), (["A", "dull", "film"], "2")]


def test_subtrees_are_all_labelled_phrases(treebank):
    phrases = read(treebank, use_subtrees=True)
    assert len(phrases) == 7 + 5
    assert phrases[3] == (["'s", "lovely"], "4")
    assert phrases[9] == (["dull", "film"], "2")


@pytest.mark.parametrize(("minimum", "kept"), [(1, 12), (2, 5), (3, 3), (4, 1), (5, 0)])
def test_min_phrase_length_drops_shorter_phrases_and_whole_sentences(treebank, minimum, kept):
    phrases = read(treebank, use_subtrees=True, min_phrase_length=minimum)
    assert len(phrases) == kept
    assert all(len(tokens) >= minimum for tokens, _ in phrases)


def test_three_classes_join_the_strong_labels(treebank):
    labels = [label for _, label in read(treebank, use_subtrees=True, granularity="3-class")]
    assert labels == ["2", "1", "2", "2", "1", "2", "1", "1", "1", "1", "0", "1"]


def test_two_classes_leave_the_neutral_ones_out(treebank):
    labels = [label for _, label in read(treebank, use_subtrees=True, granularity="2-class")]
    assert labels == ["1", "1", "1", "1", "0"]
    assert read(treebank, granularity="2-class") == [(["It", "'s", "lovely", "."], "1")]


def test_a_tokenizer_splits_the_joined_tokens_anew(treebank):
    tokens, _ = read(treebank, tokenizer=CharacterTokenizer())[1]
    assert "".join(tokens) == "A dull film"


def test_text_is_taken_as_tokens_or_with_a_tokenizer_as_a_string():
    reader = StanfordSentimentTreeBankDatasetReader()
    instance = reader.text_to_instance([Token("a"), "b"])
    assert [token.text for token in instance["tokens"]] == ["a", "b"]
    for label in (3, 3.0, "3"):
        assert reader.text_to_instance(["a"], label)["label"].label == "3"
    reader = StanfordSentimentTreeBankDatasetReader(tokenizer=CharacterTokenizer())
    assert len(reader.text_to_instance("a b")["tokens"]) == 3
