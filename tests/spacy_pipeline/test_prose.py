import gzip

import pytest

from elmo_plugin.__main__ import main
from elmo_plugin.spacy.prose import paragraphs, sentences

LINES = ["The cat sat on", "the mat. It slept!", "", "  ", "“Moon,” it said. “Moon.” And", "so on"]


def test_wrapped_lines_are_joined_until_a_blank_one():
    assert list(paragraphs(LINES)) == [
        "The cat sat on the mat. It slept!",
        "“Moon,” it said. “Moon.” And so on",
    ]


def test_lines_may_be_paragraphs_of_their_own():
    assert list(paragraphs(LINES, hard_wrapped=False)) == [line for line in LINES if line.strip()]


def test_sentences_end_with_the_quotes_that_close_behind():
    found = [" ".join(tokens) for tokens in sentences(LINES)]
    assert found == [
        "The cat sat on the mat .",
        "It slept !",
        "“ Moon , ” it said .",
        "“ Moon . ”",
        "And so on",
    ]


def test_points_of_abbreviations_and_small_letters_go_on():
    (found,) = sentences(["Mr. Poe wrote it in _The Sun_, i.e. there... and", "nowhere else."])
    assert found[:2] == ["Mr.", "Poe"]
    assert found[-3:] == ["nowhere", "else", "."]
    assert "_The" not in found


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], "Yes , please Thanks .\nWhere to ?\n"),
        (["--paragraph-lines"], "Yes , please\nThanks .\nWhere to ?\n"),
    ],
)
def test_the_command_writes_a_sentence_a_line(more, expected, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("Yes, please\nThanks.\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("Where to?\n", encoding="utf-8")
    names = [str(tmp_path / name) for name in ("a.txt", "b.txt", "out.txt")]
    main(["sentences", *names, *more])
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == expected
    (tmp_path / "old.gz").write_bytes(gzip.compress("Ein Märchen.".encode("latin-1")))
    names[0] = str(tmp_path / "old.gz")
    main(["sentences", names[0], names[2], "--encoding", "latin-1", "--force"])
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "Ein Märchen .\n"
    for encoding in ("foo", "base64"):
        with pytest.raises(SystemExit):
            main(["sentences", *names, "--encoding", encoding, "--force"])
        error = capsys.readouterr().err
        assert f"--encoding is '{encoding}', expected one of Python's" in error
