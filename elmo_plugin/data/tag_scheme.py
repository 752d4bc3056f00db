"""
The ways to write spans as tags, one tag a token: which one a file uses, and conversion to BIOUL.

- `IOB1` (CoNLL-2003's own): `I-X` inside a span, `B-X` only where a span follows one of the same
  type at once.
- `BIO` (also IOB2): every span starts with `B-X` and goes on with `I-X`.
- `BIOUL` (also BILOU): `U-X` is a span of one token, `B-X I-X .. L-X` a longer one.
"""

from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from allennlp.data.dataset_readers.dataset_utils import to_bioul as iob_to_bioul

from elmo_plugin.bilm.files.text import quoted

BOUNDARY = "O"  # what stands before the first and after the last token of a sentence


class Evidence(NamedTuple):
    """A tag, and the number of the line that it was found at."""

    line_number: int
    tag: str


def split_tag(tag: str) -> Tuple[str, str]:
    """
    # Returns

    `Tuple[str, str]`
        The prefix and the span's type: `("B", "PER")` for `B-PER`, `("O", "")` for `O`.

    # Raises

    `ValueError`
        If the tag is neither `O` nor begins with `B`, `I`, `U` or `L` and a hyphen. A prefix alone
        is a span without a type.
    """
    prefix, hyphen, span_type = tag.partition("-")
    if (prefix in ("B", "I", "U", "L") and bool(hyphen) == bool(span_type)) or tag == "O":
        return prefix, span_type
    raise ValueError(f"tag {quoted(tag)} is of no known scheme; expected O, B-X, I-X, U-X or L-X")


class TagScheme:
    """
    Finds out which scheme the tags of a file are written in: feed it the file's sentences one by
    one with `read`, then ask `name`. Its size does not grow with the file.

    # Raises

    `ValueError`
        From `read` for a tag of no known scheme, from `name` where the tags contradict each other.
        The text begins with the number of the line.
    """

    def __init__(self) -> None:
        # What was seen first of: a tag that only BIOUL, only BIO, only IOB1 has; a tag that BIOUL
        # cannot have where it stood.
        self._first: Dict[str, Evidence] = {}

    def read(self, sentence: Iterable[Tuple[int, str]]) -> None:
        """
        # Parameters

        sentence : `Iterable[Tuple[int, str]]`
            Line number and tag of every token.
        """
        previous_prefix, previous_type = BOUNDARY, ""
        evidence = Evidence(0, BOUNDARY)
        for line_number, tag in sentence:
            evidence = Evidence(line_number, tag)
            try:
                prefix, span_type = split_tag(tag)
            except ValueError as error:
                raise ValueError(f"{line_number}: {error}") from None
            same_type = previous_prefix != "O" and previous_type == span_type
            if prefix in ("U", "L"):
                self._first.setdefault("BIOUL", evidence)
            elif prefix == "B" and not same_type:
                self._first.setdefault("BIO", evidence)
            elif prefix == "I" and not same_type:
                self._first.setdefault("IOB1", evidence)
            if not _may_follow_in_bioul(previous_prefix, prefix, same_type):
                self._first.setdefault("not BIOUL", evidence)
            previous_prefix, previous_type = prefix, span_type
        if previous_prefix in ("B", "I"):
            self._first.setdefault("not BIOUL", evidence)

    def name(self) -> Optional[str]:
        """
        # Returns

        `Optional[str]`
            `IOB1`, `BIO` or `BIOUL`; `None` if nothing but `O` was read.
        """
        first = self._first
        if "BIOUL" in first:
            if "not BIOUL" in first:
                wrong, proof = first["not BIOUL"], first["BIOUL"]
                raise ValueError(
                    f"{wrong.line_number}: tag {quoted(wrong.tag)} cannot stand here in BIOUL, the "
                    f"scheme of line {proof.line_number} ({quoted(proof.tag)}); expected U-X or "
                    "B-X L-X"
                )
            return "BIOUL"
        if "BIO" in first and "IOB1" in first:
            earlier, later = sorted((first["BIO"], first["IOB1"]))
            raise ValueError(
                f"{later.line_number}: a span starts with {quoted(later.tag)}, but one in line "
                f"{earlier.line_number} with {quoted(earlier.tag)}; expected B-X for all of them "
                "(BIO) or I-X (IOB1)"
            )
        if "BIO" in first:
            return "BIO"
        return "IOB1" if "IOB1" in first else None


def _may_follow_in_bioul(previous_prefix: str, prefix: str, same_type: bool) -> bool:
    if previous_prefix in ("B", "I"):
        return prefix in ("I", "L") and same_type
    return prefix in ("O", "B", "U")


def to_bioul(tags: List[str]) -> List[str]:
    """
    # Parameters

    tags : `List[str]`
        The tags of one sentence in IOB1, BIO or BIOUL.

    # Returns

    `List[str]`
        The same spans in BIOUL.

    # Raises

    `ValueError`
        If the tags are in none of the three, or contradict each other. The text begins with the
        number of the token, from 1.
    """
    scheme = TagScheme()
    scheme.read(enumerate(tags, start=1))
    # IOB1's rules read BIO too: in both, B always starts a span, and I goes on with a span of its
    # own type.
    return list(tags) if scheme.name() == "BIOUL" else iob_to_bioul(list(tags), encoding="IOB1")
