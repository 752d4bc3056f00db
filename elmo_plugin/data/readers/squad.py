"""Dataset reader of SQuAD's JSON files: passages with questions and answers."""

import functools
import json
import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Instance, Token, TokenIndexer, Tokenizer
from allennlp.data.fields import Field, IndexField, MetadataField, TextField

from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.data.readers.sharding import ShardingReader
from elmo_plugin.data.spacy_model import spacy_tokenizer

SQUAD2_NO_ANSWER_TOKEN = "@@<NO_ANSWER>@@"


@DatasetReader.register("squad", exist_ok=True)
class SquadReader(ShardingReader):
    """
    Reads SQuAD 1.1 (Rajpurkar et al. 2016) and files of the same form. The reader is also
    registered as `squad1`, and for SQuAD 2.0 as `squad2`, which has a default `no_answer_token`.

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `SpacyTokenizer()`)
        Splits passages and questions; its tokens must have `idx`. If spaCy's `en_core_web_sm` is
        not installed, the default uses the same rules from a blank English pipeline.
    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
    passage_length_limit : `int`, optional (default = `None`)
        Truncates passages to this number of tokens, `no_answer_token` included. An answer that is
        cut off is not used in the loss; see `skip_impossible_questions`.
    question_length_limit : `int`, optional (default = `None`)
        Truncates questions to this number of tokens.
    skip_impossible_questions : `bool`, optional (default = `False`)
        If true, leaves out questions whose answers are all cut off; choose this for training. If
        false, the gold span of such a question is the passage's last token. The metrics still
        compare with its answers, or with `no_answer_token` if that is set.
    no_answer_token : `str`, optional (default = `None`)
        Token that is appended to each passage. It is the answer to questions with `is_impossible`.
    max_passage_tokens : `int`, optional (default = `10000`)
        Largest number of tokens in a passage after truncation; a longer one is an error. The memory
        of self-attention grows with the square of the length. `None` allows any length.

    # Raises

    `ConfigurationError`
        If `passage_length_limit` leaves no token.
    `ValueError`
        If the file is not SQuAD's JSON, a question or passage is empty, a passage is too long, a
        question has no answers, or an answer is not in the passage at its `answer_start`. The
        message names the file and the question's id.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        passage_length_limit: Optional[int] = None,
        question_length_limit: Optional[int] = None,
        skip_impossible_questions: bool = False,
        no_answer_token: Optional[str] = None,
        max_passage_tokens: Optional[int] = 10_000,
        **kwargs: Any,
    ) -> None:
        if "skip_invalid_examples" in kwargs:
            warnings.warn(
                "skip_invalid_examples is an old name, expected skip_impossible_questions",
                DeprecationWarning,
                stacklevel=2,
            )
            skip_impossible_questions = kwargs.pop("skip_invalid_examples")
        shortest = 1 + (no_answer_token is not None)
        if passage_length_limit is not None and passage_length_limit < shortest:
            raise ConfigurationError(
                f"passage_length_limit is {passage_length_limit}, expected at least {shortest}"
            )
        for name, value in (
            ("question_length_limit", question_length_limit),
            ("max_passage_tokens", max_passage_tokens),
        ):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} is {value}, expected at least 1")
        super().__init__(token_indexers, **kwargs)
        self._tokenizer = tokenizer or spacy_tokenizer()
        self.passage_length_limit = passage_length_limit
        self.question_length_limit = question_length_limit
        self.skip_impossible_questions = skip_impossible_questions
        self.no_answer_token = no_answer_token
        self._max_passage_tokens = max_passage_tokens

    @classmethod
    @functools.wraps(__init__)
    def squad1(cls, *arguments: Any, **named: Any) -> "SquadReader":
        """Make the reader for SQuAD 1.1, registered as "squad1"; see `SquadReader`."""
        return cls(*arguments, **named)

    @classmethod
    def squad2(
        cls,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        passage_length_limit: Optional[int] = None,
        question_length_limit: Optional[int] = None,
        skip_impossible_questions: bool = False,
        no_answer_token: str = SQUAD2_NO_ANSWER_TOKEN,
        **kwargs: Any,
    ) -> "SquadReader":
        """Make the reader for SQuAD 2.0, registered as "squad2"; see `SquadReader`."""
        return cls(
            tokenizer,
            token_indexers,
            passage_length_limit,
            question_length_limit,
            skip_impossible_questions,
            no_answer_token,
            **kwargs,
        )

    def _read(self, file_path: str) -> Iterable[Instance]:
        passage, passage_tokens = "", []  # tokenize a passage once for all its questions
        for question in self.shard_iterable(read_questions(file_path)):
            try:
                if question.passage != passage:
                    passage_tokens = self._tokenizer.tokenize(question.passage)
                    passage = question.passage
                instance = self.text_to_instance(
                    question.text,
                    passage,
                    question.is_impossible,
                    question.char_spans,
                    question.answer_texts,
                    passage_tokens,
                    {"id": question.id},
                )
            except ValueError as error:
                raise ValueError(f"{file_path}, question {question.id!r}: {error}") from error
            if instance is not None:
                yield instance

    def text_to_instance(  # type: ignore[override]
        self,
        question_text: str,
        passage_text: str,
        is_impossible: Optional[bool] = None,
        char_spans: Optional[Iterable[Tuple[int, int]]] = None,
        answer_texts: Optional[List[str]] = None,
        passage_tokens: Optional[List[Token]] = None,
        additional_metadata: Optional[Dict[str, Any]] = None,
    ) -> Optional[Instance]:
        """
        Make an instance from a question and its passage, as untokenized text. `char_spans` holds
        the offsets `(start, end)` of each answer in the passage, `end` exclusive, `answer_texts`
        the annotators' answers, for the metrics, and `passage_tokens` the passage's tokens if it
        has been tokenized for another question already.

        The instance has the fields `passage`, `question` and `metadata`, and with answers
        `span_start` and `span_end`, the first and the last token of the most frequent answer. The
        metadata holds `original_question`, `original_passage`, `token_offsets`, `question_tokens`,
        `passage_tokens` and `additional_metadata`, and with answers `answer_texts` and
        `token_spans`, the first and the last token of each. Return `None` if the question is left
        out (`skip_impossible_questions`). Raise a `ValueError` if passage or question has no token,
        or the passage too many.
        """
        passage = self._cut_passage(passage_tokens or self._tokenizer.tokenize(passage_text))
        question = self._tokenizer.tokenize(question_text)[: self.question_length_limit]
        if not question:
            raise ValueError(f"found the question {question_text!r}, expected at least one token")
        offsets = [_offsets(token) for token in passage]
        if is_impossible:
            if self.no_answer_token is None:
                raise ValueError(
                    "found is_impossible: true, as in SQuAD 2.0, expected a question with an "
                    "answer; the reader squad2 takes both"
                )
            answer_texts, spans = [self.no_answer_token], [(len(passage) - 1, len(passage) - 1)]
        else:
            wanted = list(char_spans or [])
            passage_end = offsets[-1 - (self.no_answer_token is not None)][1]
            spans = [
                _token_span(offsets, start, end)
                for start, end in wanted
                # Keep answers that are not cut off. Blanks at their end may be cut off.
                if start + len(passage_text[start:end].rstrip()) <= passage_end
            ]
            if wanted and not spans:
                if self.skip_impossible_questions:
                    return None
                if self.no_answer_token is not None:
                    answer_texts = [self.no_answer_token]
                spans = [(len(passage) - 1, len(passage) - 1)]
        metadata = {
            "original_question": question_text,
            "original_passage": passage_text,
            "token_offsets": offsets,
            "question_tokens": [token.text for token in question],
            "passage_tokens": [token.text for token in passage],
        }
        passage_field = TextField(passage)
        fields: Dict[str, Field] = {"passage": passage_field, "question": TextField(question)}
        if answer_texts:
            metadata["answer_texts"] = answer_texts
        if spans:
            metadata["token_spans"] = spans
            ((start, end), _), *_ = Counter(spans).most_common(1)
            fields["span_start"] = IndexField(start, passage_field)
            fields["span_end"] = IndexField(end, passage_field)
        fields["metadata"] = MetadataField({**metadata, **(additional_metadata or {})})
        return Instance(fields)

    def _cut_passage(self, tokens: List[Token]) -> List[Token]:
        if not tokens:
            raise ValueError("the passage is empty, expected at least one token")
        if self.passage_length_limit is not None:
            tokens = tokens[: self.passage_length_limit - (self.no_answer_token is not None)]
        if self._max_passage_tokens is not None and len(tokens) > self._max_passage_tokens:
            raise ValueError(
                f"the passage has {len(tokens)} tokens, expected at most "
                f"{self._max_passage_tokens}; passage_length_limit cuts it, max_passage_tokens "
                "allows more"
            )
        if self.no_answer_token is None:
            return tokens
        # Place the no-answer token, which covers no characters, after the last kept token.
        behind = 1 + _offsets(tokens[-1])[1]
        token = self.no_answer_token
        return [*tokens, Token(token, idx=behind, idx_end=behind, lemma_=token)]


DatasetReader.register("squad1", constructor="squad1", exist_ok=True)(SquadReader)
DatasetReader.register("squad2", constructor="squad2", exist_ok=True)(SquadReader)


def _offsets(token: Token) -> Tuple[int, int]:
    """Return a token's character offsets `(start, end)`; `end` is exclusive."""
    if token.idx is None:
        raise ValueError(
            f"the token {token.text!r} has no idx, expected a tokenizer that gives offsets"
        )
    # Prefer `idx_end`: if the tokenizer changed the token's text, its length may be wrong.
    end = token.idx + len(token.text or "") if token.idx_end is None else token.idx_end
    return token.idx, end


def _token_span(offsets: List[Tuple[int, int]], start: int, end: int) -> Tuple[int, int]:
    """Return the first and the last token that overlap the characters `start` to `end - 1`."""
    first = bisect_right(offsets, start, key=lambda offset: offset[1])
    last = bisect_left(offsets, end, key=lambda offset: offset[0]) - 1
    return min(first, len(offsets) - 1), max(first, last)


class Question(NamedTuple):
    """
    A question about a passage. `char_spans` holds each answer's character offsets `(start, end)`,
    where `end` is exclusive. Without answers, as in a hidden test set, `char_spans` and
    `answer_texts` are `None`.
    """

    id: Optional[str]
    text: str
    passage: str
    is_impossible: bool
    char_spans: Optional[List[Tuple[int, int]]]
    answer_texts: Optional[List[str]]


def read_questions(file_path: str) -> Iterator[Question]:
    """
    Check a file, and yield its questions. Its form is `{"data": [{"paragraphs": [{"context": ...,
    "qas": [{"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}`.
    For errors see `SquadReader`; if a question has no id, the message names its place in the JSON.
    """
    text = "".join(line for _, line in read_lines(cached_path(file_path), file_path))
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file_path}: not SQuAD's JSON: {error}") from error
    empty = True
    for a, article in enumerate(_get(content, "data", list, f"{file_path}")):
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
        raise ValueError(f"{where}: found {quoted(block)}, expected an object with {key!r}")
    value = block.get(key)
    # In Python a bool is an int, but in JSON it is not a number.
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        expected = {list: "a list", str: "a string", int: "an integer", bool: "true or false"}
        raise ValueError(
            f"{where}: expected {expected[kind]} under {key!r}, found {quoted(value)}; "
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
            f"{where}: at answer_start {start} the passage has {quoted(found)}, expected the "
            f"answer {quoted(text)}"
        )
    return start, start + len(text)
