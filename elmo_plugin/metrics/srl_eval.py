"""Scores for semantic roles, computed as in the CoNLL-2005 script `srl-eval.pl`."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

import torch.distributed
from allennlp.common.util import is_distributed
from allennlp.training.metrics import Metric

from elmo_plugin.metrics.conlleval import precision_recall_f1

# In allennlp-models, the path of the perl script. Here any path selects `SrlEvalScorer`.
DEFAULT_SRL_EVAL_PATH = "srl-eval.pl"

OPENING = re.compile(r"\(((?:\\\*|[^*(])+)")
Counts = Tuple[Counter, Counter, Counter]  # number of correct, wrong and missed arguments by role
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
class SrlEvalScorer(Metric):
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

    supports_distributed = True

    def __init__(
        self, srl_eval_path: str = DEFAULT_SRL_EVAL_PATH, ignore_classes: Optional[List[str]] = None
    ) -> None:
        self._ignored = set(ignore_classes or [])
        self.reset()

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
        counts: Counts = (Counter(), Counter(), Counter())
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
                self._count(predicted, gold, counts)
        batches = [counts]
        if is_distributed():
            batches = [counts] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(batches, counts)
        for batch in batches:
            self._correct += batch[0]
            self._excess += batch[1]
            self._missed += batch[2]

    def _count(self, predicted: Sequence[str], gold: Sequence[str], counts: Counts) -> None:
        correct, excess, missed = counts
        wanted = {
            (argument.start, argument.end): argument
            for argument in join_continuations(read_phrases(gold))
        }
        for argument in join_continuations(read_phrases(predicted)):
            tokens = (argument.start, argument.end)
            found = wanted.get(tokens)
            # A predicted argument that has one piece twice is wrong.
            pieces = sorted((piece.start, piece.end) for piece in argument.pieces)
            same = found and pieces == sorted({(piece.start, piece.end) for piece in found.pieces})
            if found and same and found.role == argument.role:
                correct[argument.role] += 1
                del wanted[tokens]
            else:
                excess[argument.role] += 1
        missed.update(argument.role for argument in wanted.values())

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `precision-X`, `recall-X` and `f1-measure-X`, from 0 to 1, where `X` is `overall` or
        a role that occurred. A score is 0 if there was nothing to count. `reset` sets counts to 0.
        Raise a `ValueError` if a role is called `overall`.
        """
        roles = (self._correct.keys() | self._excess.keys() | self._missed.keys()) - self._ignored
        if "overall" in roles:
            raise ValueError("found a role called 'overall', expected another name")
        metrics: Dict[str, float] = {}
        for role in sorted(roles):
            correct, excess = self._correct[role], self._excess[role]
            metrics.update(
                precision_recall_f1(role, correct, correct + excess, correct + self._missed[role])
            )
        metrics.update(precision_recall_f1("overall", *self.counts()))
        if reset:
            self.reset()
        return metrics

    def counts(self) -> List[float]:
        """Return the numbers of correct, of predicted and of gold arguments, over all roles."""
        by_role = (self._correct, self._excess, self._missed)
        correct, excess, missed = (sum(one[r] for r in {*one} - self._ignored) for one in by_role)
        return [correct, correct + excess, correct + missed]

    def reset(self) -> None:
        """Set all counts to 0."""
        self._correct: Counter = Counter()
        self._excess: Counter = Counter()
        self._missed: Counter = Counter()
