"""Scores for semantic roles, computed as in the CoNLL-2005 script `srl-eval.pl`."""

import re
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from allennlp.training.metrics import Metric

from elmo_plugin.metrics.counting import SpanMetric

# In allennlp-models, the path of the perl script. Here any path selects `SrlEvalScorer`.
DEFAULT_SRL_EVAL_PATH = "srl-eval.pl"

OPENING = re.compile(r"\(((?:\\\*|[^*(])+)")
CLOSING = re.compile(r"([^)]*)\)")


def convert_bio_tags_to_conll_format(labels: Sequence[str]) -> List[str]:
    """
    Convert BIO tags to a bracketed column, as `srl-eval.pl` reads it. There is one cell per token,
    such as `(ARG1*`, `*`, `*)` or `(V*)`. An `I-X` that does not continue a span `X` starts one.
    """
    cells = []
    for before, label, after in zip(["O", *labels], labels, [*labels[1:], "O"], strict=False):
        if label == "O":
            cells.append("*")
            continue
        starts = label[0] == "B" or before == "O" or before[1:] != label[1:]
        ends = after == "O" or after[0] == "B" or after[1:] != label[1:]
        cells.append(("(" + label[2:] if starts else "") + "*" + (")" if ends else ""))
    return cells


@dataclass(eq=False)
class Phrase:
    """
    Bracketed span of tokens and its role. Tokens are counted from 0; `end` is the last one, or -1
    while the span is open. `pieces` are the spans inside this one; `join_continuations` adds the
    parts of a discontinuous argument.
    """

    role: str
    start: int
    end: int = -1
    pieces: List["Phrase"] = field(default_factory=list)

    def all(self) -> Iterable["Phrase"]:
        """Yield this phrase, then all phrases inside it, at any depth."""
        yield self
        for piece in self.pieces:
            yield from piece.all()


def read_phrases(cells: Sequence[str]) -> List[Phrase]:
    """
    Return the phrases of a bracketed column, sorted by start and, for the same start, longest
    first. If several phrases cover the same tokens, only the innermost is kept. Raise a
    `ValueError` if brackets do not match, which is an error in `srl-eval.pl` too.
    """
    by_tokens: Dict[Tuple[int, int], Phrase] = {}
    open_phrases: List[Phrase] = []
    for position, cell in enumerate(cells):
        rest = cell
        while not rest.startswith("*"):
            opening = OPENING.match(rest)
            if opening is None:
                raise ValueError(f"token {position}: found {cell!r}, expected (ROLE* , * or *)")
            open_phrases.append(Phrase(opening[1], position))
            rest = rest[opening.end() :]
        rest = rest[1:]
        while rest:
            closing = CLOSING.match(rest)
            if closing is None or not open_phrases:
                raise ValueError(f"token {position}: found {cell!r}, which closes nothing open")
            rest = rest[closing.end() :]
            phrase = open_phrases.pop()
            if closing[1] not in ("", "0", phrase.role):
                raise ValueError(
                    f"token {position}: found {cell!r}, expected the end of {phrase.role!r}"
                )
            phrase.end = position
            if open_phrases:
                open_phrases[-1].pieces.append(phrase)
            else:
                by_tokens.update({(inner.start, inner.end): inner for inner in phrase.all()})
    if open_phrases:
        raise ValueError(f"found {open_phrases[-1].role!r} open at the end, expected a bracket")
    return sorted(by_tokens.values(), key=lambda phrase: (phrase.start, -phrase.end))


def join_continuations(phrases: Iterable[Phrase]) -> List[Phrase]:
    """
    Join the phrases of discontinuous arguments, and return the arguments. A phrase `C-X` becomes a
    piece of the last `X` before it. Without an `X` before it, the phrase becomes an argument `X`.
    `R-X` is a role like any other.
    """
    arguments = []
    last: Dict[str, Phrase] = {}
    for phrase in phrases:
        role = phrase.role.removeprefix("C-")
        if role != phrase.role and role in last:
            argument = last[role]
            if not argument.pieces:
                argument.pieces.append(Phrase(role, argument.start, argument.end))
            argument.pieces.append(phrase)
            argument.end = phrase.end
        else:
            phrase.role = role
            arguments.append(phrase)
            last[role] = phrase
    return arguments


@Metric.register("srl_eval", exist_ok=True)
class SrlEvalScorer(SpanMetric):
    """
    Precision, recall and F1 of predicted arguments, from 0 to 1, computed as in `srl-eval.pl` of
    the CoNLL-2005 shared task (Carreras and Màrquez 2005). Continuations `C-X` are first joined to
    `X`. An argument is then correct if its role and all its tokens are correct. Unlike
    allennlp-models' metric of this name, it needs no perl and works in distributed training.

    Registered as a `Metric` with name "srl_eval".

    # Parameters

    srl_eval_path : `str`, optional (default = `DEFAULT_SRL_EVAL_PATH`)
        Path of the script in allennlp-models; not used.
    ignore_classes : `List[str]`, optional (default = `None`)
        Roles that are not counted; usually `["V"]`, since the predicate is part of the input.
    """

    def __init__(
        self, srl_eval_path: str = DEFAULT_SRL_EVAL_PATH, ignore_classes: Optional[List[str]] = None
    ) -> None:
        super().__init__()
        self._ignored = set(ignore_classes or [])

    def __call__(  # type: ignore[override]
        self,
        batch_verb_indices: List[Optional[int]],
        batch_sentences: List[List[str]],
        batch_conll_formatted_predicted_tags: List[List[str]],
        batch_conll_formatted_gold_tags: List[List[str]],
    ) -> None:
        """
        Compare predicted and gold arguments, and add the counts. Each sentence has one predicate;
        one without (`None`), or whose predicate is the token `-`, is not counted, as in
        `srl-eval.pl`. Tags are bracketed columns; see `convert_bio_tags_to_conll_format`. Raise a
        `ValueError` if brackets do not match, or a column does not have one cell per token.
        """
        batch: Tuple[List[str], List[str], List[str]] = ([], [], [])
        for verb_index, sentence, predicted, gold in zip(
            batch_verb_indices,
            batch_sentences,
            batch_conll_formatted_predicted_tags,
            batch_conll_formatted_gold_tags,
            strict=True,
        ):
            if not len(sentence) == len(predicted) == len(gold):
                raise ValueError(
                    f"found {len(predicted)} predicted and {len(gold)} gold tags, "
                    f"expected {len(sentence)}, one per token"
                )
            if verb_index is not None and sentence[verb_index] != "-":
                for roles, found in zip(batch, _compared(predicted, gold)):
                    roles += [role for role in found if role not in self._ignored]
        self.add_spans(*batch)

    def value(self) -> Dict[str, float]:
        """
        Return `precision-X`, `recall-X` and `f1-measure-X`, from 0 to 1, where `X` is `overall` or
        a role that occurred. Raise a `ValueError` if a role is called `overall`.
        """
        if any(role == "overall" for role, _ in self._counts):
            raise ValueError("found a role called 'overall', expected another name")
        return super().value()


def _compared(
    predicted: Sequence[str], gold: Sequence[str]
) -> Tuple[List[str], List[str], List[str]]:
    """Return the roles of the correct, of the predicted and of the gold arguments."""
    wanted = {
        (argument.start, argument.end): argument
        for argument in join_continuations(read_phrases(gold))
    }
    found = join_continuations(read_phrases(predicted))
    roles = [argument.role for argument in wanted.values()]
    correct = []
    for argument in found:
        other = wanted.get((argument.start, argument.end))
        # A predicted argument that has one piece twice is wrong.
        pieces = sorted((piece.start, piece.end) for piece in argument.pieces)
        same = other and pieces == sorted({(piece.start, piece.end) for piece in other.pieces})
        if other and same and other.role == argument.role:
            correct.append(argument.role)
            del wanted[argument.start, argument.end]
    return correct, [argument.role for argument in found], roles
