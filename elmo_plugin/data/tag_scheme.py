"""
Detect the tag scheme of a file, and convert tags to BIOUL. A scheme encodes spans as token tags:

- `IOB1` (CoNLL-2003's own): `I-X` inside a span; `B-X` only where a span directly follows another
  of the same type.
- `BIO` (also IOB2): every span starts with `B-X` and continues with `I-X`.
- `BIOUL` (also BILOU): `U-X` is a span of one token, `B-X I-X .. L-X` a longer one.
- `BIOES` (also IOBES): BIOUL with `S` for `U` and `E` for `L`.

AllenNLP's `to_bioul` does not detect the scheme, and reads only IOB1 and BIO.
"""

from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from allennlp.data.dataset_readers.dataset_utils import to_bioul as iob_to_bioul

from elmo_plugin.bilm.files.text import quoted

BIOES_TO_BIOUL = {"E": "L", "S": "U"}


class Evidence(NamedTuple):
    """A tag that shows which scheme a file uses, and its line number in the file."""

    line_number: int
    tag: str


def split_tag(tag: str) -> Tuple[str, str]:
    """
    Split a tag of any scheme into its prefix in BIOUL and its type: `B-PER` into `("B", "PER")`,
    `E-PER` into `("L", "PER")`, `O` into `("O", "")`, and `B` into `("B", "")`.

    # Raises

    `ValueError`
        If the tag is not `O` and its prefix is none of the letters `BIULES`.
    """
    prefix, hyphen, span_type = tag.partition("-")
    if tag == "O" or (prefix in [*"BIULES"] and bool(hyphen) == bool(span_type)):
        return BIOES_TO_BIOUL.get(prefix, prefix), span_type
    raise ValueError(
        f"tag {quoted(tag)} is of no known scheme; expected O, B-X, I-X, U-X, L-X, E-X or S-X"
    )


class TagScheme:
    """
    Detector of a file's tag scheme. Call `read` for each sentence, then `name` for the result. The
    detector stores at most four tags, however long the file is.
    """

    def __init__(self) -> None:
        # First tag of each kind that tells schemes apart: "BIOUL" is a U, L, S or E; "BIO" a B that
        # IOB1 forbids; "IOB1" an I that BIO forbids; "not BIOUL" a tag that BIOUL forbids.
        self._first: Dict[str, Evidence] = {}

    def read(self, sentence: Iterable[Tuple[int, str]]) -> None:
        """
        Collect evidence of the scheme from a sentence: line number and tag of each token.

        # Raises

        `ValueError`
            If a tag is in no known scheme. The message begins with the line number.
        """
        previous_prefix, previous_type = "O", ""
        evidence = Evidence(0, "O")
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
        Return the scheme of the sentences read so far: `IOB1`, `BIO`, `BIOUL` or `BIOES`. If all
        tags are `O`, return `None`.

        # Raises

        `ValueError`
            If the tags mix schemes. The message begins with the line number.
        """
        first = self._first
        if "BIOUL" in first:
            proof = first["BIOUL"]
            bioes = proof.tag[0] in BIOES_TO_BIOUL
            if "not BIOUL" in first:
                wrong = first["not BIOUL"]
                raise ValueError(
                    f"{wrong.line_number}: tag {quoted(wrong.tag)} cannot stand here in "
                    f"{'BIOES' if bioes else 'BIOUL'}, the scheme of line {proof.line_number} "
                    f"({quoted(proof.tag)}); expected "
                    f"{'S-X or B-X E-X' if bioes else 'U-X or B-X L-X'}"
                )
            return "BIOES" if bioes else "BIOUL"
        if "BIO" in first and "IOB1" in first:
            earlier, later = sorted((first["BIO"], first["IOB1"]))
            raise ValueError(
                f"{later.line_number}: a span starts with {quoted(later.tag)}, but one in line "
                f"{earlier.line_number} with {quoted(earlier.tag)}; expected B-X for all of them "
                "(BIO) or I-X (IOB1)"
            )
        return next((name for name in ("BIO", "IOB1") if name in first), None)


def _may_follow_in_bioul(previous_prefix: str, prefix: str, same_type: bool) -> bool:
    if previous_prefix in ("B", "I"):
        return prefix in ("I", "L") and same_type
    return prefix in ("O", "B", "U")


def to_bioul(tags: List[str]) -> List[str]:
    """
    Convert the tags of one sentence in IOB1, BIO, BIOUL or BIOES to BIOUL.

    # Raises

    `ValueError`
        If the tags are in none of these schemes, or mix them. The message begins with the number of
        the token, counted from 1.
    """
    scheme = TagScheme()
    scheme.read(enumerate(tags, start=1))
    if scheme.name() in ("BIOUL", "BIOES"):
        return [BIOES_TO_BIOUL.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    # BIO can be read as IOB1: in both, B starts a span, and I continues a span of its type.
    return iob_to_bioul(list(tags), encoding="IOB1")
