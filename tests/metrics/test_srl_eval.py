import importlib.util
import json
import os
import shutil

import pytest
from make_srl_eval import EXPECTED, cases, run_script

from elmo_plugin.metrics.srl_eval import (
    SrlEvalScorer,
    convert_bio_tags_to_conll_format,
    join_continuations,
    read_phrases,
)

SCRIPT = os.environ.get("SRL_EVAL_PL")
if SCRIPT is None and importlib.util.find_spec("allennlp_models") is not None:
    from allennlp_models.structured_prediction.metrics.srl_eval_scorer import (
        DEFAULT_SRL_EVAL_PATH as SCRIPT,
    )


def counts(propositions, **arguments):
    scorer = SrlEvalScorer(**arguments)
    scorer(*map(list, zip(*propositions, strict=True)))
    return counts_of(scorer)


def counts_of(scorer):
    """Numbers of correct, of wrong and of missed arguments by role, as the script prints them."""
    found = {}
    for role in {role for role, _ in scorer._counts}:
        correct, *both = (scorer._counts[role, one] for one in ("correct", "predicted", "gold"))
        found[role] = [correct, *(number - correct for number in both)]
    return found


def score(predicted, gold, **arguments):
    """Of one sentence in BIO tags whose predicate is its first token."""
    scorer = SrlEvalScorer(**arguments)
    columns = [[convert_bio_tags_to_conll_format(tags.split())] for tags in (predicted, gold)]
    scorer([0], [["w"] * len(columns[0][0])], *columns)
    return scorer


def test_by_hand():
    metrics = score(
        "B-V B-A0 I-A0 O B-A1 B-AM-TMP", "B-V B-A0 I-A0 O B-A1 I-A1", ignore_classes=["V"]
    ).get_metric()
    assert metrics == {
        "precision-A0": 1.0,
        "recall-A0": 1.0,
        "f1-measure-A0": 1.0,
        "precision-A1": 0.0,
        "recall-A1": 0.0,
        "f1-measure-A1": 0.0,
        "precision-AM-TMP": 0.0,
        "recall-AM-TMP": 0.0,
        "f1-measure-AM-TMP": 0.0,
        "precision-overall": 1 / 3,
        "recall-overall": 1 / 2,
        "f1-measure-overall": 2 / 5,
    }


@pytest.mark.parametrize(
    ("tags", "cells"),
    [
        ("O B-A0 I-A0 B-A0 O", "* (A0* *) (A0*) *"),
        ("I-A0 I-A1 I-A1", "(A0*) (A1* *)"),
        ("B-A0 I-A1 B-V", "(A0*) (A1*) (V*)"),
    ],
)
def test_bio_to_columns_by_hand(tags, cells):
    assert convert_bio_tags_to_conll_format(tags.split()) == cells.split()


def test_counts_are_the_scripts_stored_ones():
    stored = json.loads(EXPECTED.read_text())
    assert len(stored) >= 10
    for batch in stored:
        assert counts(batch["cases"]) == batch["counts"]
    seen = {role for batch in stored for role in batch["counts"]}
    assert {"V", "A0", "A1", "R-A0", "AM-TMP", "C-A1"} <= seen


@pytest.mark.skipif(
    SCRIPT is None or shutil.which("perl") is None,
    reason="needs perl, and srl-eval.pl (its path in SRL_EVAL_PL, or allennlp-models)",
)
def test_counts_are_the_scripts():
    for seed in range(100, 112):
        batch = cases(seed, 150)
        assert counts(batch) == run_script(SCRIPT, batch), f"seed {seed}"


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["(A0*", "*"], "'A0' open at the end"),
        (["*)"], "closes nothing open"),
        (["(A0*", "*A1)"], "expected the end of 'A0'"),
        (["A0"], r"expected \(ROLE"),
        (["(*)"], r"expected \(ROLE"),
        (["(A0(A1*)"], "'A0' open at the end"),
    ],
)
def test_brackets_that_do_not_match_are_errors(cells, message):
    with pytest.raises(ValueError, match=message):
        read_phrases(cells)


def test_lengths_that_differ_are_errors():
    with pytest.raises(ValueError, match="found 1 predicted and 2 gold tags, expected 2"):
        SrlEvalScorer()([0], [["a", "b"]], [["*"]], [["*", "*"]])


def test_a_role_called_overall_is_an_error():
    with pytest.raises(ValueError, match="a role called 'overall'"):
        score("B-overall", "B-overall").get_metric()


def test_discontinuous_arguments_keep_their_pieces():
    (argument,) = join_continuations(read_phrases(["(A1*)", "*", "(C-A1*", "*)"]))
    assert (argument.role, argument.start, argument.end) == ("A1", 0, 3)
    assert [(piece.start, piece.end) for piece in argument.pieces] == [(0, 0), (2, 3)]
    # The same outer tokens and other pieces are another argument.
    found = counts_of(score("B-V B-A1 O B-C-A1 I-C-A1", "B-V B-A1 O O B-C-A1"))
    assert found["A1"] == [0, 1, 1]
