from collections import Counter

import pytest

from elmo_plugin.bilm.training.vocabulary import (
    WordVocabulary,
    count_targets,
    count_words,
    find_text_files,
)


def test_words_come_by_falling_frequency_after_the_specials(tmp_path):
    (tmp_path / "a.txt").write_text("b a b\n\nc b a <UNK>\n")
    vocabulary = WordVocabulary.from_counts(count_words([tmp_path / "a.txt"]))
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<S>\n</S>\na\n", r"v\.txt begins with .*'a'.*expected the lines .*<UNK>"),
        (b"", "v.txt begins with"),
        (b"<S>\n</S>\n<UNK>\na\nb\na\n", r"v\.txt:6: the word 'a' stands here again"),
        (b"<S>\n</S>\n<UNK>\n\xff\n", r"v\.txt is not UTF-8"),
    ],
)
def test_a_bad_vocabulary_file_is_an_error(tmp_path, content, message):
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        WordVocabulary.from_file(tmp_path / "v.txt")


def test_globs_find_files_at_any_depth(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt", "d.log", "e[1].txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    def found(pattern):
        return [str(path.relative_to(tmp_path)) for path in find_text_files(tmp_path / pattern)]

    assert found("?.txt") == ["a.txt", "b.txt"]
    assert found("**/*.txt") == ["a.txt", "b.txt", "e[1].txt", "sub/c.txt"]
    assert found("d.log") == ["d.log"]
    assert found("e[1].txt") == ["e[1].txt"]
    with pytest.raises(FileNotFoundError, match=r"no text file .*\.md, expected a path or a glob"):
        find_text_files(tmp_path / "*.md")
