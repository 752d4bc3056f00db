import json
import math
import sys
from collections import Counter

import h5py
import numpy
import pytest
import torch

from benchmarks import heldout_perplexity
from elmo_plugin.bilm.pretraining.export import export_bilm
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary
from tests.tiny_bilm import random_bilm

WORDS = ["<S>", "</S>", "<UNK>", "the", "moon", "cat"]
# Two rows of 20 targets a batch. Each sentence has its end too, forward, or its beginning.
SENTENCES = ["the cat the moon", "the the dog moon"] * 8


@pytest.fixture
def exported(tmp_path):
    def write(bias):
        bilm = random_bilm()
        softmax = WordSoftmax(len(WORDS), bilm.options.projection_dim)
        with torch.no_grad():
            softmax.weight.zero_()
            softmax.bias.copy_(torch.tensor(bias).unsqueeze(1))
        export_bilm(bilm, tmp_path / "bilm", vocabulary=WordVocabulary(WORDS), softmax=softmax)
        return tmp_path / "bilm"

    (tmp_path / "a.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("moon moon moon moon\n" * 8, encoding="utf-8")
    return write


def figures(monkeypatch, capsys, folder, *patterns, start=()):
    arguments = [str(folder), *map(str, patterns), "--batch-size", "2", *start]
    monkeypatch.setattr(sys, "argv", ["heldout_perplexity.py", *arguments])
    heldout_perplexity.main()
    return json.loads(capsys.readouterr().out)["domains"]


def test_every_word_alike_has_the_perplexity_of_their_number(
    exported, tmp_path, monkeypatch, capsys
):
    folder = exported([0.0] * len(WORDS))
    found = figures(monkeypatch, capsys, folder, tmp_path / "a.txt")[str(tmp_path / "a.txt")]
    assert found["heldout_tokens"] == 80
    assert (found["forward_perplexity"], found["backward_perplexity"]) == (6.0, 6.0)


def test_each_domain_has_its_own_figure_by_the_formula(exported, tmp_path, monkeypatch, capsys):
    bias = [-1.0, 0.5, 0.0, 1.0, 2.0, -2.0]
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    found = figures(monkeypatch, capsys, exported(bias), *paths)
    normalizer = math.log(sum(map(math.exp, bias)))
    for path, sentences in zip(paths, (SENTENCES, ["moon moon moon moon"] * 8)):
        counts = Counter(word for line in sentences for word in line.split())
        ids = {word: WORDS.index(word) if word in WORDS else 2 for word in counts}
        for end, name in ((1, "forward_perplexity"), (0, "backward_perplexity")):
            loss = sum(n * (normalizer - bias[ids[word]]) for word, n in counts.items())
            loss += len(sentences) * (normalizer - bias[end])
            mean = loss / (sum(counts.values()) + len(sentences))
            assert found[str(path)][name] == pytest.approx(math.exp(mean), abs=0.01)


def test_the_state_of_a_run_comes_first(exported, tmp_path, monkeypatch, capsys):
    """By a softmax that looks at the state, read from a checkpoint as the loop writes it."""
    folder, path = exported([0.0] * len(WORDS)), tmp_path / "a.txt"
    with h5py.File(folder / "softmax.hdf5", "r+") as file:
        weight = next(one for one in find_matrices(file) if one.shape[0] == len(WORDS))
        weight[...] = numpy.random.default_rng(0).normal(size=weight.shape)
    options = json.loads((folder / "options.json").read_text())["lstm"]
    shapes = [(2, 2, options[name]) for name in ("projection_dim", "dim")]
    found = []
    for number in (0.0, 1.0):
        states = [[torch.full(shape, number) for shape in shapes] for _ in range(2)]
        torch.save({"states": states}, tmp_path / "checkpoint.th")
        start = "--start", str(tmp_path / "checkpoint.th")
        found.append(figures(monkeypatch, capsys, folder, path, start=start)[str(path)])
    zeros = figures(monkeypatch, capsys, folder, path)[str(path)]
    names = "forward_perplexity", "backward_perplexity"
    assert [found[0][name] for name in names] == [zeros[name] for name in names]
    assert all(found[1][name] != zeros[name] for name in names)


def find_matrices(file):
    found = []
    file.visititems(lambda _, one: found.append(one) if getattr(one, "ndim", 0) == 2 else None)
    return found
