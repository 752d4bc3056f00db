import gzip

import pytest

from elmo_plugin.bilm.files.text import quoted, read_lines


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbfa b\n\nc", ["a b\n", "\n", "c"]),
        (b"a\r\nb\r\n", ["a\r\n", "b\r\n"]),
        (b"a\rb\nc\n", ["a\rb\n", "c\n"]),
        (b"a\rb\rc", ["a\r", "b\r", "c"]),
        ("a\u2028b\x0cc\x85\n".encode(), ["a\u2028b\x0cc\x85\n"]),
    ],
    ids=["empty", "mark alone", "mark", "crlf", "lone cr", "cr only", "other separators"],
)
def test_lines(tmp_path, content, expected):
    (tmp_path / "text").write_bytes(content)
    assert list(read_lines(tmp_path / "text")) == list(enumerate(expected, start=1))


def test_bad_bytes_name_file_and_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"fine\n" + b"x" * 1000 + b"\xe9\n")
    with pytest.raises(ValueError, match=r"corpus:2: not UTF-8 .*: b'x{80}'\.\.\.; expected UTF-8"):
        list(read_lines(path, "corpus"))
    assert [line for _, line in read_lines(path, keep_bad_bytes=True)][1].endswith("x\udce9\n")


def test_quotes_are_short_and_printable():
    assert quoted("naïve\ud800\n") == r"'naïve\ud800\n'"
    assert quoted("x" * 81) == repr("x" * 80) + "..."
    assert quoted([1] * 100) == "[" + "1, " * 26 + "1..."


def test_gzip_files_of_any_name_are_decompressed(tmp_path):
    for name in ("text.gz", "text"):
        (tmp_path / name).write_bytes(gzip.compress(b"\xef\xbb\xbfa b\r\n\nc"))
        assert list(read_lines(tmp_path / name)) == [(1, "a b\r\n"), (2, "\n"), (3, "c")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-9],
        lambda data: data[:40] + bytes([data[40] ^ 255]) + data[41:],
        lambda data: data[:-5] + b"xxxxx",
        lambda data: data[:2],
        lambda data: data + b"foreign",
    ],
    ids=["cut off", "flipped", "checksum", "two bytes", "more behind"],
)
def test_damaged_gzip_file_is_named(tmp_path, damage):
    lines = "".join(f"line {number * 7919 % 1000}\n" for number in range(500))
    (tmp_path / "text.gz").write_bytes(damage(gzip.compress(lines.encode())))
    with pytest.raises(ValueError, match=r"text\.gz is not a whole gzip file: "):
        list(read_lines(tmp_path / "text.gz"))
