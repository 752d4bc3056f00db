import os
from collections import Counter

import pytest

from elmo_plugin.bilm.pretraining.vocabulary import (
    WordVocabulary,
    count_targets,
    find_text_files,
    vocabulary_of,
)


def test_words_come_by_falling_frequency_after_the_specials(tmp_path):
    (tmp_path / "a.txt").write_text("b a b\n\nc b a <UNK>\n")
    vocabulary = vocabulary_of([tmp_path / "a.txt"])
    assert vocabulary.words == ["<S>", "</S>", "<UNK>", "b", "a", "c"]
    assert [vocabulary.id(word) for word in ("<S>", "b", "zebra", "<UNK>")] == [0, 3, 2, 2]
    assert count_targets([tmp_path / "a.txt"]) == 3 + 4 + 2


def test_minimum_count_and_size_leave_rare_words_out():
    counts = Counter(a=5, b=3, c=3, d=1)
    assert WordVocabulary.from_counts(counts, min_count=3).words[3:] == ["a", "b", "c"]
    assert WordVocabulary.from_counts(counts, max_size=5).words[3:] == ["a", "b"]


def test_a_file_is_read_as_it_was_written(tmp_path):
    vocabulary = WordVocabulary.from_counts(Counter({"é": 2, "\u2028": 1, "a": 1}))
    vocabulary.save(tmp_path / "vocabulary.txt")
    assert WordVocabulary.from_file(tmp_path / "vocabulary.txt").words == vocabulary.words


def test_globs_find_files_at_any_depth(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt", "d.log", "e[1].txt", "sub/e1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    def found(pattern):
        return [str(path.relative_to(tmp_path)) for path in find_text_files(tmp_path / pattern)]

    assert found("?.txt") == ["a.txt", "b.txt"]
    assert found("**/*.txt") == ["a.txt", "b.txt", "e[1].txt", "sub/c.txt", "sub/e1.txt"]
    assert found("d.log") == ["d.log"]
    assert found("sub/e[1].txt") == ["sub/e1.txt"]
    (tmp_path / "e1.txt").write_text("")
    assert found("e[1].txt") == ["e[1].txt"]  # a file of this name comes before the pattern
    with pytest.raises(FileNotFoundError, match=r"no text file .*\.md, expected a path or a glob"):
        find_text_files(tmp_path / "*.md")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        # As bilm-tf's own test file begins; its reader takes them anywhere.
        ("</S>\n<S>\n<UNK>\nthe\n", ["</S>", "<S>", "<UNK>", "the"]),
        ("the\n<UNK>\nof\n<S>\n</S>\n", ["the", "<UNK>", "of", "<S>", "</S>"]),
        ("<S>\n</S>\n<UNK>\n!!!MAXTERMID\nthe\n", ["<S>", "</S>", "<UNK>", "the"]),
        ("\ufeff<S>\r\n</S>\r\n<UNK>\r\nthe\r\n", ["<S>", "</S>", "<UNK>", "the"]),
        ("<S>\n</S>\n<UNK>\nthe", ["<S>", "</S>", "<UNK>", "the"]),
    ],
)
def test_specials_in_any_order_and_lines_of_any_kind(tmp_path, content, words):
    (tmp_path / "v.txt").write_bytes(content.encode())
    vocabulary = WordVocabulary.from_file(tmp_path / "v.txt")
    assert vocabulary.words == words
    assert [vocabulary.id(word) for word in words] == list(range(len(words)))
    assert vocabulary.id("zebra") == vocabulary.unknown_id == words.index("<UNK>")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "v.txt begins with"),
        (b"<S>\n</S>\na\n", r"v\.txt begins with .*'a'.*expected the lines .*<UNK>"),
        (b"<S>\n</S>\n<UNK>\na\nb\na\n", r"v\.txt:6: the word 'a' comes twice"),
        (b"<S>\n</S>\n<UNK>\na\n\nb\n", r"v\.txt:5: '' is empty or holds white space"),
        (b"<S>\n</S>\n<UNK>\nNew York\n", r"v\.txt:4: 'New York' is empty or holds white space"),
        (b"<S>\n</S>\n<UNK>\na\rb\n", r"v\.txt:4: 'a\\rb' is empty or holds white space"),
        (b"<S>\n</S>\n<UNK>\na\n\xff\n", r"v\.txt:5: not UTF-8"),
        (b"<UNK>\na\n", r"v\.txt begins with .* has no <S> and no </S>, expected the lines"),
        (b"a" * 10**6, r"v\.txt begins with \['a{50}'\]"),
    ],
)
def test_a_bad_line_is_named(tmp_path, content, message):
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        WordVocabulary.from_file(tmp_path / "v.txt")
    assert len(str(caught.value)) < 400


def test_a_fifo_is_no_vocabulary(tmp_path):
    os.mkfifo(tmp_path / "v.txt")
    with pytest.raises(FileNotFoundError, match=r"no vocabulary file .*v\.txt"):
        WordVocabulary.from_file(tmp_path / "v.txt")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_count": -1}, "min_count is -1, expected at least 1"),
        ({"min_count": 0}, "min_count is 0, expected at least 1"),
        ({"max_size": -5}, "max_size is -5, expected at least 3"),
        ({"max_size": 2}, "max_size is 2, expected at least 3"),
    ],
)
def test_limits_that_cannot_be(limits, message, tmp_path):
    with pytest.raises(ValueError, match=message):  # before the text is read
        vocabulary_of([tmp_path / "nowhere.txt"], **limits)
    assert WordVocabulary.from_counts(Counter(a=1), max_size=3).words == ["<S>", "</S>", "<UNK>"]
