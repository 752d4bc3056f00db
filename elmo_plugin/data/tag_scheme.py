"""
Detect the tag scheme of a file, and convert tags to BIOUL. A scheme encodes spans as token tags:

- `IOB1` (CoNLL-2003's own): `I-X` inside a span; `B-X` only where a span directly follows another
  of the same type.
- `BIO` (also IOB2): every span starts with `B-X` and continues with `I-X`.
- `BIOUL` (also BILOU): `U-X` is a span of one token, `B-X I-X .. L-X` a longer one.
- `BIOES` (also IOBES): BIOUL with `S` for `U` and `E` for `L`.

AllenNLP's `to_bioul` does not detect the scheme, and reads only IOB1 and BIO.
"""

from typing import Dict, Iterable, List, Optional, Tuple

from allennlp.data.dataset_readers.dataset_utils import to_bioul as iob_to_bioul

from elmo_plugin.bilm.files.text import quoted

BIOES_TO_BIOUL = {"E": "L", "S": "U"}


def split_tag(tag: str) -> Tuple[str, str]:
    """
    Split a tag of any scheme into its prefix in BIOUL and its type: `B-PER` into `("B", "PER")`,
    `E-PER` into `("L", "PER")`, `O` into `("O", "")`, and `B` into `("B", "")`. Raise a
    `ValueError` if the tag is not `O` and its prefix is none of the letters `BIULES`.
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
        # Line number and first tag of each kind that tells schemes apart: "BIOUL" is a U, L, S or
        # E; "BIO" a B that IOB1 forbids; "IOB1" an I that BIO forbids; "not BIOUL" a tag that BIOUL
        # forbids.
        self._first: Dict[str, Tuple[int, str]] = {}
        self._error = ""

    def read(self, sentence: Iterable[Tuple[int, str]]) -> None:
        """Collect evidence of the scheme from a sentence: line number and tag of each token."""
        previous_prefix, previous_type = "O", ""
        evidence = (0, "O")
        for evidence in sentence:
            try:
                prefix, span_type = split_tag(evidence[1])
            except ValueError as error:
                self._error = self._error or f"{evidence[0]}: {error}"
                return
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
        Return the scheme of the sentences read so far: `IOB1`, `BIO`, `BIOUL` or `BIOES`, or `None`
        if all tags are `O`. Raise a `ValueError` that begins with the line number if a tag is in no
        known scheme, or the tags mix schemes.
        """
        if self._error:
            raise ValueError(self._error)
        first = self._first
        if "BIOUL" in first:
            line_number, tag = first["BIOUL"]
            is_bioes = tag[0] in BIOES_TO_BIOUL
            name, example = ("BIOES", "S-X or B-X E-X") if is_bioes else ("BIOUL", "U-X or B-X L-X")
            if "not BIOUL" in first:
                wrong_line, wrong = first["not BIOUL"]
                raise ValueError(
                    f"{wrong_line}: tag {quoted(wrong)} cannot stand here in {name}, the scheme of "
                    f"line {line_number} ({quoted(tag)}); expected {example}"
                )
            return name
        if "BIO" in first and "IOB1" in first:
            (earlier_line, earlier), (later_line, later) = sorted((first["BIO"], first["IOB1"]))
            raise ValueError(
                f"{later_line}: a span starts with {quoted(later)}, but one in line {earlier_line} "
                f"with {quoted(earlier)}; expected B-X for all of them (BIO) or I-X (IOB1)"
            )
        return next((name for name in ("BIO", "IOB1") if name in first), None)


def _may_follow_in_bioul(previous_prefix: str, prefix: str, same_type: bool) -> bool:
    if previous_prefix in ("B", "I"):
        return prefix in ("I", "L") and same_type
    return prefix in ("O", "B", "U")


def to_bioul(tags: List[str]) -> List[str]:
    """
    Convert the tags of one sentence in IOB1, BIO, BIOUL or BIOES to BIOUL. Raise a `ValueError`
    that begins with the number of the token, from 1, if they are in no scheme or mix several.
    """
    scheme = TagScheme()
    scheme.read(enumerate(tags, start=1))
    if scheme.name() in ("BIOUL", "BIOES"):
        return [BIOES_TO_BIOUL.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    # BIO can be read as IOB1: in both, B starts a span, and I continues a span of its type.
    return iob_to_bioul(list(tags), encoding="IOB1")
