"""Semantic-role scores as the CoNLL-2005 shared task's script `srl-eval.pl` counts them."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

import torch.distributed
from allennlp.common.util import is_distributed
from allennlp.training.metrics import Metric

# What configs and allennlp-models call the path of the script. Nothing is run: any path stands for
# the counting below.
DEFAULT_SRL_EVAL_PATH = "srl-eval.pl"

OPENING = re.compile(r"\(((?:\\\*|[^*(])+)")
Counts = Tuple[Counter, Counter, Counter]  # by role: correct, predicted in excess, missed
CLOSING = re.compile(r"([^)]*)\)")


def convert_bio_tags_to_conll_format(labels: Sequence[str]) -> List[str]:
    """
    Writes BIO tags as the bracketed column that the script reads. Every sequence has a reading: an
    `I` that continues nothing opens a span.

    # Parameters

    labels : `Sequence[str]`
        One tag per token: `O`, `B-X` or `I-X`.

    # Returns

    `List[str]`
        One cell per token, such as `(ARG1*`, `*`, `*)` or `(V*)`.
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
    A bracketed span.

    # Parameters

    role : `str`
    start : `int`
        Its first token, from 0.
    end : `int`, optional (default = `-1`)
        Its last token; -1 while it is open.
    pieces : `List[Phrase]`, optional
        Of a discontinuous argument its parts; before they are joined, the spans inside this one.
    """

    role: str
    start: int
    end: int = -1
    pieces: List["Phrase"] = field(default_factory=list)

    def all(self) -> Iterable["Phrase"]:
        """This phrase, then those inside it."""
        yield self
        for piece in self.pieces:
            yield from piece.all()


def read_phrases(cells: Sequence[str]) -> List[Phrase]:
    """
    # Parameters

    cells : `Sequence[str]`
        A bracketed column, one cell per token.

    # Returns

    `List[Phrase]`
        By start, the longer first; of those with the same tokens only the innermost.

    # Raises

    `ValueError`
        If brackets do not match, where the script dies.
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
    # Parameters

    phrases : `Iterable[Phrase]`
        In order.

    # Returns

    `List[Phrase]`
        The arguments: `C-X` is a further piece of the last `X` before it, and an `X` of its own
        where there is none. `R-X` is a role like any other.
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


def same_pieces(gold: Phrase, predicted: Phrase) -> bool:
    """Whether both cover the same pieces; each of the predicted ones may be used once."""
    left = {(piece.start, piece.end) for piece in gold.pieces}
    for piece in predicted.pieces:
        if (piece.start, piece.end) not in left:
            return False
        left.remove((piece.start, piece.end))
    return not left


@Metric.register("srl_eval", exist_ok=True)
class SrlEvalScorer(Metric):
    """
    Precision, recall and F1 over the arguments of predicates, counted as `srl-eval.pl` of the
    CoNLL-2005 shared task (Carreras and Màrquez 2005) counts: an argument is right if its role and
    all its tokens are; the continuations `C-X` are joined to `X` first and count as one argument.
    No perl is needed, and it works in distributed training, where allennlp-models' metric of this
    name raises.

    Registered as a `Metric` with name "srl_eval".

    # Parameters

    srl_eval_path : `str`, optional (default = `DEFAULT_SRL_EVAL_PATH`)
        Where allennlp-models looks for the script. Accepted, not used.
    ignore_classes : `List[str]`, optional (default = `None`)
        Roles that are not counted; `["V"]` for the usual score, as the predicate is given.
    """

    def __init__(
        self,
        srl_eval_path: str = DEFAULT_SRL_EVAL_PATH,
        ignore_classes: Optional[List[str]] = None,
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
        # Parameters

        batch_verb_indices : `List[Optional[int]]`
            The predicate's token in each sentence, from 0; a sentence with `None` is not counted.
        batch_sentences : `List[List[str]]`
            The tokens. As in the script's files, a predicate written `-` is none.
        batch_conll_formatted_predicted_tags : `List[List[str]]`
            The bracketed columns (`convert_bio_tags_to_conll_format`) that were predicted.
        batch_conll_formatted_gold_tags : `List[List[str]]`
            The right ones.

        # Raises

        `ValueError`
            If brackets do not match, or a column has more or fewer cells than the sentence tokens.
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
            if found and found.role == argument.role and same_pieces(found, argument):
                correct[argument.role] += 1
                del wanted[tokens]
            else:
                excess[argument.role] += 1
        missed.update(argument.role for argument in wanted.values())

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        # Parameters

        reset : `bool`, optional (default = `False`)
            Start counting again.

        # Returns

        `Dict[str, float]`
            `precision-X`, `recall-X` and `f1-measure-X` as fractions, for `X` = `overall` and every
            role that was seen; 0 where nothing was to be counted.

        # Raises

        `ValueError`
            If a role is called `overall`.
        """
        roles = (self._correct.keys() | self._excess.keys() | self._missed.keys()) - self._ignored
        if "overall" in roles:
            raise ValueError("found a role called 'overall', expected another name")
        rows: Dict[str, Tuple[int, ...]] = {
            role: (self._correct[role], self._excess[role], self._missed[role])
            for role in sorted(roles)
        }
        rows["overall"] = tuple(map(sum, zip((0, 0, 0), *rows.values(), strict=True)))
        metrics = {}
        for name, (correct, excess, missed) in rows.items():
            metrics[f"precision-{name}"] = correct / max(correct + excess, 1)
            metrics[f"recall-{name}"] = correct / max(correct + missed, 1)
            # 2 p r / (p + r), written in counts
            metrics[f"f1-measure-{name}"] = 2 * correct / max(2 * correct + excess + missed, 1)
        if reset:
            self.reset()
        return metrics

    def counts(self) -> List[float]:
        """Correct, predicted and gold arguments of all roles since the last reset."""
        by_role = (self._correct, self._excess, self._missed)
        correct, excess, missed = (sum(one[r] for r in {*one} - self._ignored) for one in by_role)
        return [correct, correct + excess, correct + missed]

    def reset(self) -> None:
        """Starts counting again."""
        self._correct: Counter = Counter()
        self._excess: Counter = Counter()
        self._missed: Counter = Counter()
