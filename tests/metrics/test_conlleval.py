import json
import random
import re
from pathlib import Path

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.training.metrics import SpanBasedF1Measure

from elmo_plugin.metrics.conlleval import Conlleval

TYPES = ["PER", "LOC", "ORG"]


def vocabulary(tags):
    vocab = Vocabulary()
    for tag in tags:
        vocab.add_token_to_namespace(tag, "tags")
    return vocab


def tensors(vocab, pairs):
    """Gold and predicted taggings as a padded batch: scores, gold ids, mask."""
    size = max(len(gold) for gold, _ in pairs)
    ids = torch.zeros(2, len(pairs), size, dtype=torch.long)
    mask = torch.zeros(len(pairs), size, dtype=torch.bool)
    for row, pair in enumerate(pairs):
        mask[row, : len(pair[0])] = True
        for which, tags in enumerate(pair):
            for column, tag in enumerate(tags):
                ids[which, row, column] = vocab.get_token_index(tag, "tags")
    scores = torch.nn.functional.one_hot(ids[1], vocab.get_vocab_size("tags")).float()
    return scores, ids[0], mask


def score(pairs, **arguments):
    vocab = vocabulary({tag for pair in pairs for tags in pair for tag in tags} | {"O"})
    metric = Conlleval(vocab, **arguments)
    metric(*tensors(vocab, pairs))
    return metric.get_metric()


def well_formed(generator, encoding, length):
    tags = []
    kinds = TYPES if encoding == "BMES" else [*TYPES, "O"]  # BMES has no O in AllenNLP
    while len(tags) < length:
        kind, size = generator.choice(kinds), generator.randint(1, 3)
        if kind == "O":
            tags.append("O")
            continue
        prefixes = {
            "BIO": ["B"] + ["I"] * (size - 1),
            "IOB1": ["B" if tags and tags[-1][2:] == kind else "I"] + ["I"] * (size - 1),
            "BIOUL": ["U"] if size == 1 else ["B"] + ["I"] * (size - 2) + ["L"],
            "BMES": ["S"] if size == 1 else ["B"] + ["M"] * (size - 2) + ["E"],
        }[encoding]
        tags += [f"{prefix}-{kind}" for prefix in prefixes]
    return tags


def test_metrics_by_hand():
    # gold: PER 0-1, LOC 3; predicted: PER 0-1 (right), LOC 3-4 (too long), LOC 5 (not there)
    gold = ["B-PER", "I-PER", "O", "B-LOC", "O", "O"]
    predicted = ["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "B-LOC"]
    assert score([(gold, predicted)]) == {
        "precision-overall": 1 / 3,
        "recall-overall": 1 / 2,
        "f1-measure-overall": 2 / 5,
        "precision-PER": 1.0,
        "recall-PER": 1.0,
        "f1-measure-PER": 1.0,
        "precision-LOC": 0.0,
        "recall-LOC": 0.0,
        "f1-measure-LOC": 0.0,
    }
    assert score([(gold, predicted)], ignore_classes=["LOC"])["f1-measure-overall"] == 1.0
    assert score([(["O"], ["O"])]) == {
        "precision-overall": 0.0,
        "recall-overall": 0.0,
        "f1-measure-overall": 0.0,
    }


@pytest.mark.parametrize("encoding", ["BIO", "IOB1", "BIOUL", "BMES"])
def test_equals_allennlp_on_well_formed_taggings(encoding):
    generator = random.Random(7)
    prefixes = sorted({"BIO": "BI", "IOB1": "BI"}.get(encoding, encoding.replace("O", "")))
    vocab = vocabulary(["O"] + [f"{prefix}-{kind}" for prefix in prefixes for kind in TYPES])
    ours = Conlleval(vocab, label_encoding=encoding)
    stock = SpanBasedF1Measure(vocab, label_encoding=encoding)
    for _ in range(25):
        pairs = []
        for _ in range(generator.randint(1, 5)):
            gold = well_formed(generator, encoding, generator.randint(1, 12))
            predicted = list(gold)
            while len(predicted) != len(gold) or (len(gold) > 1 and predicted == gold):
                predicted = well_formed(generator, encoding, len(gold))
            keep = generator.random() < 0.3
            pairs.append((gold, gold if keep else predicted))
        for metric in (ours, stock):
            metric(*tensors(vocab, pairs))
        ours_now, stock_now = ours.get_metric(), stock.get_metric()
        assert ours_now.keys() == stock_now.keys()
        for key, value in stock_now.items():
            assert ours_now[key] == pytest.approx(value, abs=1e-9), key
    assert 0 < ours_now["f1-measure-overall"] < 1


def test_equals_the_script_on_ill_formed_taggings():
    cases = json.loads(Path(__file__).with_name("conlleval.json").read_text())
    assert len(cases) == 40
    for case in cases:
        metrics = score(case["pairs"])
        lines = case["output"].splitlines()
        names = ["overall"] + [line.split(":")[0].strip() for line in lines[2:]]
        for name, line in zip(names, lines[1:], strict=True):
            shown = re.search(r"precision: +([\d.]+)%; recall: +([\d.]+)%; FB1: +([\d.]+)", line)
            for key, text in zip(
                ("precision", "recall", "f1-measure"), shown.groups(), strict=True
            ):
                assert f"{100 * metrics[f'{key}-{name}']:.2f}" == text, (case, key, name)
        assert len(metrics) == 3 * len(names)


@pytest.mark.parametrize(
    ("encoding", "gold", "predicted", "counts"),
    # AllenNLP's span_f1 raises InvalidTagSequence on most of these predictions.
    [
        ("BIOUL", "B-A L-A O U-B", "I-A I-A O L-B", [2, 2, 2]),
        ("BIOUL", "B-A L-A", "U-A L-A", [0, 2, 1]),
        ("BIOUL", "B-A L-A", "U-A I-A", [0, 2, 1]),
        ("BIOUL", "B-A I-A L-A", "B-A L-A L-A", [0, 2, 1]),
        ("BIOUL", "U-A U-A", "U-A L-A", [2, 2, 2]),
        ("BIOUL", "U U", "U L", [2, 2, 2]),
        ("BMES", "B-A E-A", "S-A E-A", [0, 2, 1]),
        ("BMES", "B-A M-A E-A", "B-A E-A M-A", [0, 2, 1]),
    ],
)
def test_spans_of_ill_formed_tags(encoding, gold, predicted, counts):
    vocab = vocabulary({*gold.split(), *predicted.split(), "O"})
    metric = Conlleval(vocab, label_encoding=encoding)
    metric(*tensors(vocab, [(gold.split(), predicted.split())]))
    assert metric.counts() == counts


def test_padding_rows_and_missing_mask():
    vocab = vocabulary(["O", "B-PER"])
    scores, gold, _ = tensors(vocab, [(["B-PER"], ["B-PER"]), (["B-PER"], ["B-PER"])])
    metric = Conlleval(vocab)
    metric(scores, gold, torch.tensor([[True], [False]]))
    assert metric.counts() == [1, 1, 1]
    metric(scores, gold)
    assert metric.counts() == [3, 3, 3]


def test_errors():
    with pytest.raises(ConfigurationError, match="unknown label encoding: BILOU; expected BIO"):
        Conlleval(Vocabulary(), label_encoding="BILOU")
    with pytest.raises(ConfigurationError, match=r"found the tag 'U-PER'.*label encoding BIO;"):
        score([(["U-PER"], ["O"])])
    vocab = vocabulary(["O", "B-PER"])
    with pytest.raises(ConfigurationError, match="id 7; expected less than 2"):
        Conlleval(vocab)(torch.zeros(1, 1, 2), torch.tensor([[7]]))


@pytest.mark.parametrize("name", ["overall", "unseen"])
def test_a_type_with_the_name_of_a_sum_is_an_error(name):
    with pytest.raises(ConfigurationError, match=f"spans of the type '{name}', the name of a sum"):
        Conlleval(vocabulary(["O", f"B-{name}"]))
