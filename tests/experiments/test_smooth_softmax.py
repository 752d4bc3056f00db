"""`experiments/smooth_softmax.py`: its definition by hand, and its files."""

import sys

import pytest
import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.pretraining.export import export_bilm
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax, load_softmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary
from experiments import smooth_softmax
from experiments.smooth_softmax import main, smoothed, target_counts
from tests.tiny_bilm import random_bilm

WORDS = WordVocabulary([*SPECIAL_WORDS, *"abcd"])


@pytest.fixture(autouse=True)
def one_neighbour(monkeypatch):
    monkeypatch.setattr(smooth_softmax, "NUM_NEIGHBOURS", 1)


@pytest.mark.parametrize("words_at_once", [1, 3, 1024])
def test_smoothed_by_hand(words_at_once, monkeypatch):
    monkeypatch.setattr(smooth_softmax, "WORDS_AT_ONCE", words_at_once)
    # The mean is zero. By direction the neighbours are 0 and 1, 2 and 3.
    weight = torch.tensor([[2.0, 1.0], [1.0, 2.0], [-2.0, -1.0], [-1.0, -2.0]])
    counts = torch.tensor([1.0, 9.0, 36.0, 1e12])  # shares 1, a half, a quarter and none
    expected = torch.tensor([[1.0, 2.0], [1.5, 1.5], [-1.75, -1.25], [-1.0, -2.0]])
    torch.testing.assert_close(smoothed(weight, counts), expected, atol=1e-5, rtol=0)


def test_all_words_are_neighbours_if_there_are_few(monkeypatch):
    monkeypatch.setattr(smooth_softmax, "NUM_NEIGHBOURS", 10)
    weight = torch.eye(3)
    expected = torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(smoothed(weight, torch.ones(3)), expected)


def test_targets_are_counted_as_a_direction_predicts_them(tmp_path):
    (tmp_path / "1.txt").write_text("a b a\n\nx a\n")
    (tmp_path / "2.txt").write_text("d\n")
    counts = target_counts(WORDS, sorted(tmp_path.iterdir()))
    assert dict(zip(WORDS.words, counts.tolist())) == {
        "<S>": 3, "</S>": 3, "<UNK>": 1, "a": 3, "b": 1, "c": 0, "d": 1,
    }  # fmt: skip


@pytest.mark.parametrize("max_words", [None, 5, 99])
def test_the_files_differ_in_the_softmax_alone(tmp_path, monkeypatch, max_words):
    bilm, softmax = random_bilm().half().float(), WordSoftmax(len(WORDS), 6)
    with torch.no_grad():
        softmax.weight.normal_(generator=torch.Generator().manual_seed(0))
    export_bilm(bilm, tmp_path / "in", vocabulary=WORDS, softmax=softmax, dtype="float16")
    (tmp_path / "1.txt").write_text("a b a\n")
    more = [] if max_words is None else [f"--max-words={max_words}"]
    paths = [str(tmp_path / name) for name in ("in", "out", "*.txt")]
    monkeypatch.setattr(sys, "argv", ["smooth_softmax", *paths, *more])
    main()
    kept = min(max_words or 7, 7)
    words = WordVocabulary.from_file(tmp_path / "out" / "vocabulary.txt")
    assert words.words == WORDS.words[:kept]
    again = load_bilm(tmp_path / "out" / "options.json", tmp_path / "out" / "weights.hdf5")
    assert all(map(torch.equal, again.state_dict().values(), bilm.state_dict().values()))
    found = WordSoftmax(kept, 6)
    load_softmax(found, tmp_path / "out" / "softmax.hdf5")
    expected = smoothed(softmax.weight.half().float(), target_counts(WORDS, [tmp_path / "1.txt"]))
    torch.testing.assert_close(found.weight, expected[:kept].half().float())
    assert (found.weight - softmax.weight[:kept]).abs().max() > 0.01


def test_missing_text_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["smooth_softmax", str(tmp_path), "out", "none"])
    with pytest.raises(SystemExit, match=r"^error: .*vocabulary\.txt"):
        main()
