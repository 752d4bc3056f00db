"""Reads questions on passages, and their answers, from SQuAD's JSON files."""

import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, Token, TokenIndexer, Tokenizer
from allennlp.data.fields import Field, IndexField, MetadataField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import SpacyTokenizer

from elmo_plugin.data.readers.squad_json import read_questions

SQUAD2_NO_ANSWER_TOKEN = "@@<NO_ANSWER>@@"


@DatasetReader.register("squad", exist_ok=True)
class SquadReader(DatasetReader):
    """
    Reads SQuAD 1.1 (Rajpurkar et al. 2016) and files of the same form. `squad1` is the same reader;
    `squad2` adds to each passage a token that stands for "no answer".

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `SpacyTokenizer()`)
        Splits passages and questions; must give `idx`. Without spaCy's `en_core_web_sm` the default
        applies the same rules from a blank English pipeline; nothing is downloaded.
    token_indexers : `Dict[str, TokenIndexer]`, optional (default = `None`)
        How tokens become ids; `{"tokens": SingleIdTokenIndexer()}` if not given.
    passage_length_limit : `int`, optional (default = `None`)
        Passages are cut to so many tokens, that for "no answer" among them. An answer that is cut
        off is no target any more; see `skip_impossible_questions`.
    question_length_limit : `int`, optional (default = `None`)
        Questions are cut to so many tokens.
    skip_impossible_questions : `bool`, optional (default = `False`)
        Whether a question whose answers are all cut off is left out, as is right in training. If
        not, its target is the passage's last token; its texts still count in the metrics, or where
        there is one `no_answer_token` in their place.
    no_answer_token : `str`, optional (default = `None`)
        Is put behind each passage, the answer of questions with `is_impossible`.
    max_passage_tokens : `int`, optional (default = `10000`)
        A longer passage, after `passage_length_limit`, is an error: self-attention takes memory by
        the square of it. `None` allows any.

    # Raises

    `ConfigurationError`
        If `passage_length_limit` leaves no token.
    `ValueError`
        While reading, with path and question id: if the JSON has not SQuAD's form, a question or
        passage is empty, a passage too long, a question has no answers, or an answer does not stand
        at its `answer_start`.
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
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        self._tokenizer = tokenizer or SpacyTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self.passage_length_limit = passage_length_limit
        self.question_length_limit = question_length_limit
        self.skip_impossible_questions = skip_impossible_questions
        self.no_answer_token = no_answer_token
        self._max_passage_tokens = max_passage_tokens

    @classmethod
    def squad1(
        cls,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        passage_length_limit: Optional[int] = None,
        question_length_limit: Optional[int] = None,
        skip_impossible_questions: bool = False,
        **kwargs: Any,
    ) -> "SquadReader":
        """The reader for SQuAD 1.1, registered as "squad1"; the arguments are `SquadReader`'s."""
        return cls(
            tokenizer,
            token_indexers,
            passage_length_limit,
            question_length_limit,
            skip_impossible_questions,
            **kwargs,
        )

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
        """The reader for SQuAD 2.0, registered as "squad2"; the arguments are `SquadReader`'s."""
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
        passage, passage_tokens = "", []  # tokenized once for all its questions
        for question in self.shard_iterable(read_questions(file_path)):
            if question.passage != passage:
                passage, passage_tokens = (
                    question.passage,
                    self._tokenizer.tokenize(question.passage),
                )
            try:
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
        # Parameters

        question_text : `str`
            Untokenized.
        passage_text : `str`
            Untokenized.
        is_impossible : `bool`, optional (default = `None`)
            Whether the passage does not answer it.
        char_spans : `Iterable[Tuple[int, int]]`, optional (default = `None`)
            First character of each answer and the one behind it.
        answer_texts : `List[str]`, optional (default = `None`)
            The marked answers, for the metrics.
        passage_tokens : `List[Token]`, optional (default = `None`)
            The passage's tokens, if known.
        additional_metadata : `Dict[str, Any]`, optional (default = `None`)
            Is added to `metadata`.

        # Returns

        `Optional[Instance]`
            Fields `passage`, `question` and `metadata`, and with answers `span_start` and
            `span_end`, the most frequent one's; `None` if the question is to be skipped. Metadata
            holds `original_question`, `original_passage`, `token_offsets`, `question_tokens`,
            `passage_tokens`, and with answers `answer_texts` and `token_spans` (first and last
            token of each).

        # Raises

        `ValueError`
            If passage or question hold no token, or the passage too many.
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
                # Not cut off; blanks behind it are in no token.
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

    def apply_token_indexers(self, instance: Instance) -> None:
        """
        Gives the text fields their indexers, after the instance has come from a worker process.

        # Parameters

        instance : `Instance`
            As made by `text_to_instance`; changed in place.
        """
        for name in ("passage", "question"):
            instance.fields[name].token_indexers = self._token_indexers  # type: ignore[attr-defined]

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
        # Of no text, also where the passage was cut there.
        behind = 1 + _offsets(tokens[-1])[1]
        token = self.no_answer_token
        return [*tokens, Token(token, idx=behind, idx_end=behind, lemma_=token)]


DatasetReader.register("squad1", constructor="squad1", exist_ok=True)(SquadReader)
DatasetReader.register("squad2", constructor="squad2", exist_ok=True)(SquadReader)


def _offsets(token: Token) -> Tuple[int, int]:
    """First character and the one behind the last."""
    if token.idx is None:
        raise ValueError(
            f"the token {token.text!r} has no idx, expected a tokenizer that gives offsets"
        )
    # A tokenizer may write a token otherwise than the text does.
    end = token.idx + len(token.text or "") if token.idx_end is None else token.idx_end
    return token.idx, end


def _token_span(offsets: List[Tuple[int, int]], start: int, end: int) -> Tuple[int, int]:
    """The first and the last token that share a character with the answer, both in the span."""
    first = bisect_right(offsets, start, key=lambda offset: offset[1])
    last = bisect_left(offsets, end, key=lambda offset: offset[0]) - 1
    return min(first, len(offsets) - 1), max(first, last)
