"""`experiments/word_vectors.py`, with a stand-in for gensim, which is not installed."""

import runpy
import sys
import types
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "word_vectors.py"


@pytest.fixture
def script(monkeypatch):
    models = types.ModuleType("gensim.models")
    models.Word2Vec = models.FastText = None
    monkeypatch.setitem(sys.modules, "gensim", types.ModuleType("gensim"))
    monkeypatch.setitem(sys.modules, "gensim.models", models)
    return runpy.run_path(str(SCRIPT))


def test_files_are_read_side_by_side_each_line_once(script, tmp_path):
    long, short, empty = (tmp_path / name for name in ("long.txt", "short.txt", "empty.txt"))
    long.write_text("".join(f"Long {number} word\n\n" for number in range(60_000)))
    short.write_text("".join(f"short {number}\n" for number in range(6_000)))
    empty.write_text("")
    sentences = script["Sentences"]([long, short, empty], lowercase=True)
    found = list(sentences)
    assert found == list(sentences)
    for name, count in (("long", 60_000), ("short", 6_000)):
        numbers = [int(words[1]) for words in found if words[0] == name]
        assert numbers == list(range(count))
    # A tenth of each has been read after a tenth of the lines, up to a block.
    half = found[: len(found) // 2]
    assert sum(words[0] == "short" for words in half) == pytest.approx(3_000, abs=400)


def test_vectors_are_written_as_glove_writes_them(script, tmp_path):
    vectors = types.SimpleNamespace(index_to_key=["the", "moon"], vectors=[[0.5, -1], [2, 0.25]])
    script["write"](vectors, tmp_path / "vectors.txt")
    expected = "the 0.5000 -1.0000\nmoon 2.0000 0.2500\n"
    assert (tmp_path / "vectors.txt").read_text() == expected
