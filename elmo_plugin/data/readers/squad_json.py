"""SQuAD's JSON, checked: articles, their paragraphs, the questions on each and their answers."""

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from allennlp.common.file_utils import cached_path


class Question(NamedTuple):
    """
    `char_spans`: first character of each answer and the one behind it. Both they and `answer_texts`
    are `None` where the file gives no answers at all, as for a hidden test set.
    """

    id: Optional[str]
    text: str
    passage: str
    is_impossible: bool
    char_spans: Optional[List[Tuple[int, int]]]
    answer_texts: Optional[List[str]]


def read_questions(file_path: str) -> Iterator[Question]:
    """
    # Parameters

    file_path : `str`
        A path or URL of `{"data": [{"paragraphs": [{"context": ..., "qas": [{"id": ..., "question":
        ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}`.

    # Returns

    `Iterator[Question]`
        In the order of the file.

    # Raises

    `ValueError`
        With path and question id, or the place in the JSON where there is none: if the file has
        not this form, a passage is empty, a question has no answers or an answer does not stand
        at its `answer_start`.
    """
    try:
        content = json.loads(Path(cached_path(file_path)).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file_path}: not SQuAD's JSON: {error}") from error
    empty = True
    articles = _get(content, "data", list, f"{file_path}")
    for a, article in enumerate(articles):
        where = f"{file_path}, data[{a}]"
        for p, paragraph in enumerate(_get(article, "paragraphs", list, where)):
            place = f"{where}.paragraphs[{p}]"
            passage = _get(paragraph, "context", str, place)
            for q, question in enumerate(_get(paragraph, "qas", list, place)):
                empty = False
                yield _question(question, passage, file_path, f"{place}.qas[{q}]")
    if empty:
        raise ValueError(f"{file_path}: no question found, expected some under data.paragraphs.qas")


def _get(block: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(block, dict):
        raise ValueError(f"{where}: found {str(block)[:80]!r}, expected an object with {key!r}")
    value = block.get(key)
    # A bool is an int in Python, but no number in JSON.
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        expected = {list: "a list", str: "a string", int: "an integer", bool: "true or false"}
        raise ValueError(
            f"{where}: expected {expected[kind]} under {key!r}, found {str(value)[:80]!r}; "
            f"the keys are {sorted(block)}"
        )
    return value


def _question(question: Any, passage: str, file_path: str, place: str) -> Question:
    text = _get(question, "question", str, place)
    identity = question.get("id")
    where = place if identity is None else f"{file_path}, question {identity!r}"
    if not passage.strip():
        raise ValueError(f"{where}: the passage is empty, expected text under 'context'")
    is_impossible = "is_impossible" in question and _get(question, "is_impossible", bool, where)
    spans, texts = None, None
    if "answers" in question and not is_impossible:
        answers = _get(question, "answers", list, where)
        if not answers:
            raise ValueError(
                f"{where}: there are no answers, expected at least one, or is_impossible: true"
            )
        spans = [_char_span(answer, passage, where) for answer in answers]
        texts = [answer["text"] for answer in answers]
    return Question(identity, text.strip().replace("\n", ""), passage, is_impossible, spans, texts)


def _char_span(answer: Dict[str, Any], passage: str, where: str) -> Tuple[int, int]:
    text = _get(answer, "text", str, where)
    start = _get(answer, "answer_start", int, where)
    if not text.strip():
        raise ValueError(f"{where}: found the answer {text!r}, expected text")
    found = passage[start : start + len(text)] if start >= 0 else ""
    if found != text:
        raise ValueError(
            f"{where}: at answer_start {start} the passage has {found[:80]!r}, expected the answer "
            f"{text[:80]!r}"
        )
    return start, start + len(text)
