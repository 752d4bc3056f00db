"""The input cut into shards, and shards read back."""

import random

import pytest

from elmo_plugin.bilm.corpus.shards import Range, check_shards, cut_shards, find_files, read_shard
from elmo_plugin.bilm.files.text import read_lines


def shards_of(folder, shard_tokens, **more):
    files = find_files(["*.txt"], folder)
    return files, list(cut_shards(files, folder, shard_tokens, **more))


def read_back(folder, files, shards):
    return [
        (line.file, line.number, line.text)
        for shard in shards
        for line in read_shard(shard, files, folder)
    ]


def test_by_hand(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"the cat\nsat on\n\nthe mat .\n")
    (tmp_path / "b.txt").write_bytes(b"Yes\nna\xc3\xafve moon")
    files, shards = shards_of(tmp_path, 4)
    assert files == ["a.txt", "b.txt"]
    assert [shard.ranges for shard in shards] == [
        [Range(0, 0, 15, 1)],  # two lines of two tokens
        [Range(0, 15, 26, 3)],  # a blank line counts as one token
        [Range(1, 0, 15, 1)],
    ]
    assert [(shard.lines, shard.tokens) for shard in shards] == [(2, 4), (2, 3), (2, 3)]
    assert read_back(tmp_path, files, shards) == [
        ("a.txt", 1, "the cat"),
        ("a.txt", 2, "sat on"),
        ("a.txt", 3, ""),
        ("a.txt", 4, "the mat ."),
        ("b.txt", 1, "Yes"),
        ("b.txt", 2, "naïve moon"),
    ]


def test_small_files_share_a_shard(tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text(f"file {name}\n" * (name != "c"))
    files, shards = shards_of(tmp_path, 6)
    assert [[one.file for one in shard.ranges] for shard in shards] == [[0, 1, 3], [4]]
    assert [number for _, number, _ in read_back(tmp_path, files, shards)] == [1, 1, 1, 1]


ENDS = ["\n", "\r\n", "\n\r", "\r", "\n\n", " \n", "\n\ufeff", "\u2028\n", "\x0b\n", "\x85\n"]


@pytest.mark.parametrize("seed", range(30))
def test_shards_hold_the_lines_that_the_file_has(tmp_path, seed):
    """Any ends of lines, byte order marks anywhere, with and without an end at the end."""
    generator = random.Random(seed)
    for name in "abc":
        ends = ["\r"] if generator.random() < 0.2 else generator.sample(ENDS, 3)
        text = "\ufeff" * generator.randrange(2)
        for _ in range(generator.randrange(40)):
            words = generator.choices(["the", "cat", "\ufeff", "Überraschung"], k=3)
            text += " ".join(words[: generator.randrange(4)]) + generator.choice(ends)
        text += "end" * generator.randrange(2)
        (tmp_path / f"{name}.txt").write_bytes(text.encode())
    expected = [
        (f"{name}.txt", number, line.strip())
        for name in "abc"
        for number, line in read_lines(tmp_path / f"{name}.txt")
    ]
    for shard_tokens in (1, 2, 5, 20, 10**9):
        files, shards = shards_of(tmp_path, shard_tokens)
        assert read_back(tmp_path, files, shards) == expected
        for shard in shards:
            assert shard.lines == len(list(read_shard(shard, files, tmp_path)))
        assert sum(shard.tokens for shard in shards) == sum(len(t.split()) for *_, t in expected)
        # Every byte of every file, once and in order.
        ranges = [one for shard in shards for one in shard.ranges]
        for number, name in enumerate(files):
            ends = [(one.start, one.stop) for one in ranges if one.file == number]
            stops = [0, *(stop for _, stop in ends)]
            assert [start for start, _ in ends] == stops[:-1]
            assert stops[-1] == (tmp_path / name).stat().st_size
    assert len(shards) == 1 or not expected


def test_a_line_that_is_not_utf_8_has_file_and_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 10)
    (tmp_path / "b.txt").write_bytes(b"fine\n" * 6 + b"ol\xe9 there\n")
    with pytest.raises(ValueError, match=r"^b\.txt, line 7: the byte 0xe9 is not UTF-8"):
        shards_of(tmp_path, 3)
    files, shards = shards_of(tmp_path, 3, replace_bad_utf8=True)
    lines = list(read_shard(shards[-1], files, tmp_path, replace_bad_utf8=True))
    assert lines[-1].text == "ol\ufffd there"


def test_a_line_longer_than_a_list_may_be_has_file_and_line(tmp_path):
    (tmp_path / "a.txt").write_text("one two\none two three\n")
    with pytest.raises(ValueError, match=r"^a\.txt:2: a line of 3 tokens, expected at most 2"):
        shards_of(tmp_path, 9, most_tokens=2)


def test_another_text_is_seen(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one two\nthree four\n")
    files, shards = shards_of(tmp_path, 2)
    path.write_text("one two\nthree FOUR\n")
    check_shards(shards[:1], files, tmp_path)
    for read in (check_shards, lambda found, *more: list(read_shard(found[0], *more))):
        with pytest.raises(
            ValueError, match=r"1 lines from a\.txt:2 on: the text has changed since"
        ):
            read(shards[1:], files, tmp_path)


def test_files_are_found_once_and_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "more/c.txt", "[x].txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_files(["**/*.txt"], tmp_path) == ["[x].txt", "a.txt", "b.txt", "more/c.txt"]
    assert find_files(["b.txt", "?.txt"], tmp_path) == ["b.txt", "a.txt"]
    assert find_files(["[x].txt"], tmp_path) == ["[x].txt"]
    assert find_files(["*"], tmp_path) == ["[x].txt", "a.txt", "b.txt"]
    assert find_files([tmp_path / "a.txt"], tmp_path) == [str(tmp_path / "a.txt")]
    spellings = ["./a.txt", "a.txt", "more/../a.txt", tmp_path / "a.txt", "*.txt"]
    assert find_files(spellings, tmp_path) == ["./a.txt", "[x].txt", "b.txt"]
    for wrong in ("*.text", "gone.txt", "mor?"):
        with pytest.raises(FileNotFoundError, match="there is no file "):
            find_files([wrong], tmp_path)
    with pytest.raises(ValueError, match="more is a folder or a device"):
        find_files(["more"], tmp_path)
