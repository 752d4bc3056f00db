import json
import math
import runpy
import sys
from pathlib import Path

import numpy
import pytest

KNESER_NEY = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "kneser_ney.py"))
KneserNey = KNESER_NEY["KneserNey"]


def padded(sentences, order):
    return numpy.array([i for words in sentences for i in [0] * (order - 1) + list(words) + [1]])


def test_a_bigram_model_equals_the_formula_by_hand():
    # Words 3 (a) and 4 (b): a b </S>, a a </S>. Discounts 0.5, 0.75, 0.75.
    model = KneserNey(padded([(3, 4), (3, 3)], 2), 5, order=2)
    # Words before: a: <S>, a -> 2; b: a -> 1; </S>: b, a -> 2. Total 5, discounts .75 + .5 + .75.
    unigram = {
        word: (max(count - {0: 0, 1: 0.5, 2: 0.75}[count], 0) + 2.0 / 4) / 5
        for word, count in {1: 2, 2: 0, 3: 2, 4: 1}.items()
    }
    # After a: b 1, a 1, </S> 1; mass left over 3 * 0.5.
    after_a = {
        word: ((0.5 if word in (1, 3, 4) else 0) + 1.5 * unigram[word]) / 3 for word in unigram
    }
    # After <S>: a 2.
    expected = [(2 - 0.75 + 0.75 * unigram[3]) / 2, after_a[4], (1 - 0.5 + 0.5 * unigram[1]) / 1]
    logs = model.log_probabilities(padded([(3, 4)], 2))
    numpy.testing.assert_allclose(numpy.exp(logs), expected)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_after_any_history_sum_to_one(order):
    rng = numpy.random.default_rng(0)
    text = [rng.zipf(1.5, rng.integers(1, 9)).clip(1, 27) + 2 for _ in range(300)]
    model = KneserNey(padded(text, order), 30, order)
    for history in ([], [3], [3, 4, 29], [28, 28, 27, 26, 25], list(text[0])):
        total = sum(
            math.exp(model.log_probabilities(padded([[*history, word]], order))[len(history)])
            for word in range(1, 30)
        )
        assert total == pytest.approx(1.0)


def test_longer_history_helps_on_text_that_has_it():
    text = [(3, 4, 5), (6, 4, 7)] * 50
    perplexities = []
    for order in (1, 2, 3):
        logs = KneserNey(padded(text, order), 8, order).log_probabilities(padded(text, order))
        perplexities.append(math.exp(-logs.mean()))
    assert perplexities[0] > perplexities[1] > perplexities[2]


def test_each_held_out_glob_has_its_figure_with_the_words_of_a_file(tmp_path, monkeypatch, capsys):
    def figures(*more):
        arguments = ["--train", str(tmp_path / "train.txt"), "--heldout", *globs, *more]
        monkeypatch.setattr(sys, "argv", ["kneser_ney.py", *arguments])
        KNESER_NEY["main"]()
        return json.loads(capsys.readouterr().out)

    texts = {"train": "a b c\n" * 9 + "a c b\n" * 3 + "rare\n", "one": "a b c\n", "two": "c a\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    words = tmp_path / "words.txt"
    words.write_text("<S>\n</S>\n<UNK>\na\nb\nc\n", encoding="utf-8")
    globs = [str(tmp_path / name) for name in ("on*.txt", "tw*.txt")]
    found = figures("--vocabulary", str(words))
    assert found["num_words"] == 6
    assert found == figures("--min-count", "2")
    one, two = (found["domains"][pattern] for pattern in globs)
    assert (one["heldout_tokens"], two["heldout_tokens"]) == (4, 3)
    assert one["per_file"] == {"one.txt": one["forward_perplexity"]}
    assert one["forward_perplexity"] < 2 < two["forward_perplexity"]
