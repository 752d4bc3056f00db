"""Dataset reader of the Stanford Sentiment Treebank: sentences or phrases, with their labels."""

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Instance, Token, TokenIndexer, Tokenizer
from allennlp.data.fields import Field, TextField

from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.data.gold_labels import GoldLabelField, label_text
from elmo_plugin.data.readers.sharding import IndexingReader

LABELS = ("0", "1", "2", "3", "4")
# Map from the treebank's labels to those of instances, for each granularity. Phrases whose label
# maps to None are skipped.
GRANULARITIES: Dict[str, Dict[str, Optional[str]]] = {
    "5-class": {label: label for label in LABELS},
    "3-class": {"0": "0", "1": "0", "2": "1", "3": "2", "4": "2"},
    "2-class": {"0": "0", "1": "0", "2": None, "3": "1", "4": "1"},
}


class Phrase(NamedTuple):
    """Labelled node of a tree. It covers the tokens `start` to `end - 1`."""

    label: str
    start: int
    end: int


@DatasetReader.register("sst_tokens", exist_ok=True)
class StanfordSentimentTreeBankDatasetReader(IndexingReader):
    """
    Reads the Stanford Sentiment Treebank (Socher et al. 2013, "Recursive deep models for semantic
    compositionality over a sentiment treebank"). A line is a bracketed tree, such as `(3 (2 It) (4
    works))`. Its nodes have labels from 0 (very negative) to 4 (very positive).

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
    tokenizer : `Tokenizer`, optional (default = `None`)
        Joins the treebank's tokens by spaces and tokenizes the result. `None` keeps the tokens.
    use_subtrees : `bool`, optional (default = `False`)
        If true, every labelled phrase becomes an instance, else only the whole sentence.
    granularity : `str`, optional (default = `"5-class"`)
        `"5-class"` keeps the labels. `"3-class"` maps 0 and 1 to `0` (negative), 2 to `1`
        (neutral), and 3 and 4 to `2` (positive). `"2-class"` leaves neutral phrases out, and maps
        negative phrases to `0` and positive phrases to `1`.
    min_phrase_length : `int`, optional (default = `1`)
        With `use_subtrees`, phrases and sentences with fewer tokens are left out. Peters et al.
        2018 train on phrases of at least 4 tokens (appendix).

    # Raises

    `ConfigurationError`
        If `granularity` is unknown, or `min_phrase_length` is less than 1, or more than 1 without
        `use_subtrees`.
    `ValueError`
        While reading, if brackets do not balance, a node lacks its label or tokens, or a label is
        not one of 0 to 4. The message gives path and line. Also if the file holds no tree.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        tokenizer: Optional[Tokenizer] = None,
        use_subtrees: bool = False,
        granularity: str = "5-class",
        min_phrase_length: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        if granularity not in GRANULARITIES:
            raise ConfigurationError(
                f"granularity is {granularity!r}, expected one of {list(GRANULARITIES)}"
            )
        if min_phrase_length < 1:
            raise ConfigurationError(
                f"min_phrase_length is {min_phrase_length}, expected at least 1"
            )
        if min_phrase_length > 1 and not use_subtrees:
            raise ConfigurationError(
                f"min_phrase_length is {min_phrase_length} without use_subtrees, which reads "
                f"whole sentences only; expected use_subtrees: true or min_phrase_length: 1"
            )
        self._tokenizer = tokenizer
        self._use_subtrees = use_subtrees
        self._granularity = granularity
        self._min_phrase_length = min_phrase_length

    def _read(self, file_path: str) -> Iterable[Instance]:
        empty = True
        for number, line in read_lines(cached_path(file_path), file_path):
            if not line.strip():
                continue
            empty = False
            try:
                instances = self._line_to_instances(line)
            except ValueError as error:
                raise ValueError(f"{file_path}, line {number}: {error}") from error
            yield from instances
        if empty:
            raise ValueError(f"{file_path}: no tree found, expected one bracketed tree per line")

    def _line_to_instances(self, line: str) -> List[Instance]:
        tokens, phrases = parse_tree(line)
        for phrase in phrases:  # reject unknown labels, even of phrases that are not used
            self._coarsen(phrase.label)
        instances = [
            self.text_to_instance(tokens[phrase.start : phrase.end], phrase.label)
            for phrase in (phrases if self._use_subtrees else phrases[:1])
            if phrase.end - phrase.start >= self._min_phrase_length
        ]
        return [instance for instance in instances if instance is not None]

    def text_to_instance(  # type: ignore[override]
        self,
        tokens: Union[str, Sequence[Union[str, Token]]],
        sentiment: Optional[Union[str, float]] = None,
    ) -> Optional[Instance]:
        """
        Make an instance with the fields `tokens` and `label` from a sentence or phrase. `sentiment`
        is the label in the treebank, from 0 to 4. `tokens` may be a string if the reader has a
        tokenizer. With `"2-class"`, return `None` for a neutral phrase. Raise a `ValueError` if
        `tokens` is empty, or a string but there is no tokenizer, or `sentiment` is unknown.
        """
        if self._tokenizer is not None:
            text = tokens if isinstance(tokens, str) else " ".join(map(str, tokens))
            field = TextField(self._tokenizer.tokenize(text))
        elif isinstance(tokens, str):
            raise ValueError(
                f"found the string {quoted(tokens)}, expected tokens: there is no tokenizer"
            )
        else:
            field = TextField([Token(t) if isinstance(t, str) else t for t in tokens])
        if not field.tokens:
            raise ValueError("the sentence is empty, expected at least one token")
        fields: Dict[str, Field] = {"tokens": field}
        if sentiment is not None:
            label = self._coarsen(str(label_text(sentiment)))
            if label is None:
                return None
            fields["label"] = GoldLabelField(label)
        return Instance(fields)

    def _coarsen(self, sentiment: str) -> Optional[str]:
        if sentiment not in LABELS:
            raise ValueError(
                f"sentiment label {quoted(sentiment)}, expected one of {list(LABELS)} "
                f"for granularity {self._granularity!r}"
            )
        return GRANULARITIES[self._granularity][sentiment]


def parse_tree(text: str) -> Tuple[List[str], List[Phrase]]:
    """
    Parse one bracketed tree in the Penn Treebank's notation, such as `(3 (2 It) (4 works))`. Return
    the tokens, and the labelled phrases in the order of their opening brackets. The first phrase is
    the whole sentence. Raise a `ValueError` if `text` is not a single balanced tree, or a node has
    no label or no token.
    """
    tokens: List[str] = []
    phrases: List[Phrase] = []
    open_phrases: List[int] = []
    needs_label = False
    for match in re.finditer(r"[()]|[^\s()]+", text):
        symbol, column = match.group(), match.start() + 1
        if needs_label and symbol in "()":
            raise ValueError(f"column {column}: found {quoted(symbol)}, expected a label after '('")
        if not open_phrases and (phrases or symbol != "("):
            expected = "the end of the line" if phrases else "'('"
            raise ValueError(f"column {column}: found {quoted(symbol)}, expected {expected}")
        if needs_label:
            phrases[-1] = phrases[-1]._replace(label=symbol)
            needs_label = False
        elif symbol == "(":
            open_phrases.append(len(phrases))
            phrases.append(Phrase(label="", start=len(tokens), end=len(tokens)))
            needs_label = True
        elif symbol == ")":
            index = open_phrases.pop()
            phrase = phrases[index] = phrases[index]._replace(end=len(tokens))
            if phrase.start == phrase.end:
                raise ValueError(
                    f"column {column}: the node labelled {quoted(phrase.label)} has no token"
                )
        else:
            tokens.append(symbol)
    if open_phrases:
        raise ValueError(
            f"{len(open_phrases)} brackets are not closed, found {quoted(text.strip())}"
        )
    return tokens, phrases
