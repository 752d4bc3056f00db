"""Dataset reader for coreference data in CoNLL-2012 format (OntoNotes 5)."""

import itertools
import logging
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Field, Instance, Token, TokenIndexer
from allennlp.data.dataset_readers.dataset_reader import PathOrStr
from allennlp.data.dataset_readers.dataset_utils import enumerate_spans
from allennlp.data.fields import ListField, MetadataField, SequenceLabelField, SpanField, TextField
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.data.readers.conll2012 import (
    SPEAKER_COLUMN,
    WORD_COLUMN,
    Row,
    gold_conll_files,
    read_sentence_rows,
)
from elmo_plugin.data.readers.sharding import ShardingReader

logger = logging.getLogger(__name__)

# First and last token of a mention, as indices into the document's tokens.
Mention = Tuple[int, int]

NO_SPEAKER = "-"
BEGIN = re.compile(r"#begin document \((.*)\); part (\d+)")
BRACKET = re.compile(r"(\()?([0-9]+)(\))?")


class Document(NamedTuple):
    """
    A document and its coreference clusters. `key` is its name, such as `bc/cctv/00/cctv_0000`, or
    empty if the file gives none. `sentences` holds each sentence's words, `speakers` the speaker of
    each word, and `clusters` the mentions of each cluster.
    """

    key: str
    sentences: List[List[str]]
    speakers: List[List[str]]
    clusters: List[List[Mention]]


def read_documents(path: Path) -> Iterator[Document]:
    """
    Yield the documents of a file in CoNLL-2012 format. A document lies between the lines `#begin
    document (KEY); part NUMBER` and `#end document`. A file without these lines is one document.
    Documents without tokens are skipped. Raise a `ValueError` with path and line if a line is
    malformed, brackets do not match, or a document begins before the previous one ends; also if the
    file has no token.
    """
    begun = num_documents = 0
    document = Document("", [], [], [])
    clusters: Dict[str, List[Mention]] = {}
    end_of_file: Tuple[List[Row], int, str] = ([], 0, "#end document")
    for rows, line_number, line in itertools.chain(read_sentence_rows(path), [end_of_file]):
        if rows:
            for cluster, mention in _mentions(path, rows, sum(map(len, document.sentences))):
                clusters.setdefault(cluster, []).append(mention)
            document.sentences.append([columns[WORD_COLUMN] for _, columns in rows])
            document.speakers.append([columns[SPEAKER_COLUMN] for _, columns in rows])
        if line.startswith("#begin document"):
            if begun:
                raise ValueError(
                    f"{path}, line {line_number}: found {quoted(line)}, expected "
                    f"'#end document' of the one that begins in line {begun}"
                )
            begun = line_number
            match = BEGIN.match(line)
            document = document._replace(key=match[1] if match else "")
        elif line.startswith("#end document"):
            if begun and not line_number:
                logger.warning(
                    "%s: the document that begins in line %d has no '#end document': a file cut "
                    "short?",
                    path,
                    begun,
                )
            if document.sentences:
                num_documents += 1
                yield document._replace(clusters=list(clusters.values()))
            begun, document, clusters = 0, Document("", [], [], []), {}
    if not num_documents:
        raise ValueError(f"{path}: found no token, expected CoNLL-2012 columns")


def _mentions(path: Path, rows: List[Row], first_token: int) -> Iterator[Tuple[str, Mention]]:
    """
    Yield `(cluster, (first, last))` for each mention in a sentence, ordered by last token. Tokens
    are indices into the document; `first_token` is the index of the sentence's first token.
    """
    # First token and line number of each mention that is still open, by cluster.
    opened: Dict[str, List[Tuple[int, int]]] = {}
    for token, (line_number, columns) in enumerate(rows, first_token):
        where, cell = f"{path}, line {line_number}", columns[-1]
        for bracket in [] if cell in ("-", "_", "*") else cell.split("|"):
            match = BRACKET.fullmatch(bracket)
            if match is None or not (match[1] or match[3]):
                raise ValueError(
                    f"{where}: found {quoted(cell)} in the last column, expected '-' or brackets "
                    "such as (3, 3) or (3), divided by |"
                )
            opens, cluster, closes = match.groups()
            if opens:
                opened.setdefault(cluster, []).append((token, line_number))
            if closes:
                if not opened.get(cluster):
                    raise ValueError(
                        f"{where}: found {quoted(cell)}, but no mention of cluster "
                        f"{quoted(cluster)} is open in this sentence"
                    )
                yield cluster, (opened[cluster].pop()[0], token)
    for cluster, mentions in opened.items():
        for _, line_number in mentions:
            raise ValueError(
                f"{path}, line {line_number}: a mention of cluster {quoted(cluster)} "
                "opens here and does not close before its sentence ends"
            )


def merge_clusters(clusters: Iterable[Iterable[Mention]]) -> List[List[Mention]]:
    """
    Merge each cluster into an earlier cluster that shares a mention with it. If several earlier
    clusters do, the one with the first shared mention is chosen, and the others stay as they are.
    The mentions of each cluster are sorted.
    """
    merged: List[List[Mention]] = []
    cluster_of: Dict[Mention, List[Mention]] = {}
    for cluster in clusters:
        mentions = list(dict.fromkeys((int(start), int(end)) for start, end in cluster))
        owner = next((cluster_of[m] for m in mentions if m in cluster_of), None)
        if owner is None:
            owner = []
            merged.append(owner)
        for mention in mentions:
            if cluster_of.setdefault(mention, owner) is owner and mention not in owner:
                owner.append(mention)
    return [sorted(cluster) for cluster in merged]


@DatasetReader.register("coref", exist_ok=True)
class ConllCorefReader(ShardingReader):
    """
    Makes an instance from each document of a file in CoNLL-2012 format. Given a directory, it reads
    all `*gold_conll` files below it, sorted by path.

    The field `text` holds the tokens. `spans` holds the candidates, all spans of at most
    `max_span_width` tokens within a sentence. `span_labels` holds each candidate's cluster number,
    or -1 for none. `metadata` holds `original_text` (the tokens) and `clusters`. Unlike in
    allennlp-models' reader of this name, it also holds `sentence_lengths` (in tokens), `speakers`
    (one for each token), `document_key`, and `genre`, the part of the key before its first `/`.

    Registered as a `DatasetReader` with name "coref".

    # Parameters

    max_span_width : `int`
        Largest number of tokens in a candidate span.
    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
    wordpiece_modeling_tokenizer : `PretrainedTransformerTokenizer`, optional (default = `None`)
        Splits the words into word pieces, which become the tokens.
    max_sentences : `int`, optional (default = `None`)
        Reads at most this number of sentences from the start of each document.
    remove_singleton_clusters : `bool`, optional (default = `False`)
        If true, leaves out clusters of one mention.

    # Raises

    `ValueError`
        While reading, if there is no file or a file is malformed. The message gives path and line.
    """

    def __init__(
        self,
        max_span_width: int,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        wordpiece_modeling_tokenizer: Optional[PretrainedTransformerTokenizer] = None,
        max_sentences: Optional[int] = None,
        remove_singleton_clusters: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        if max_span_width < 1:
            raise ConfigurationError(f"found max_span_width {max_span_width}, expected 1 or more")
        if max_sentences is not None and max_sentences < 1:
            raise ConfigurationError(f"found max_sentences {max_sentences}, expected 1 or more")
        self._max_span_width = max_span_width
        self._wordpiece_modeling_tokenizer = wordpiece_modeling_tokenizer
        self._max_sentences = max_sentences
        self._remove_singleton_clusters = remove_singleton_clusters

    def _read(self, file_path: str) -> Iterator[Instance]:
        for document in self.shard_iterable(self._documents(cached_path(file_path))):
            instance = self.text_to_instance(
                document.sentences,
                document.clusters,
                document.speakers,
                document.key.partition("/")[0] if "/" in document.key else "",
                document.key,
            )
            # Workers send instances without indexers to the main process, where AllenNLP adds them.
            instance["text"].token_indexers = None  # type: ignore[attr-defined]
            yield instance

    def _documents(self, file_path: PathOrStr) -> Iterator[Document]:
        for path in gold_conll_files(Path(file_path)):
            yield from read_documents(path)

    def text_to_instance(
        self,
        sentences: List[List[str]],
        gold_clusters: Optional[List[List[Mention]]] = None,
        speakers: Optional[List[List[str]]] = None,
        genre: str = "",
        document_key: str = "",
    ) -> Instance:
        """
        Make an instance from one document. `sentences` holds the words of each sentence, and
        `speakers`, if known, the speaker of each word. `genre` and `document_key` (the document's
        name) may be empty.

        `gold_clusters` holds clusters of mentions. A mention is a pair of indices into the
        document: its first and its last word. Clusters that share a mention are merged. Raise a
        `ValueError` if there are no words, or a sentence does not have one speaker per word.
        """
        sentences = [sentence for sentence in sentences if sentence]
        if not sentences:
            raise ValueError("found a document without words, expected one at least")
        if speakers is None:
            speakers = [[NO_SPEAKER] * len(sentence) for sentence in sentences]
        speakers = [names for names in speakers if names]
        if [*map(len, speakers)] != [*map(len, sentences)]:
            raise ValueError(
                f"found {[*map(len, speakers)]} speakers by sentence, expected one for each "
                f"word: {[*map(len, sentences)]}"
            )
        if self._max_sentences is not None and len(sentences) > self._max_sentences:
            sentences, speakers = sentences[: self._max_sentences], speakers[: self._max_sentences]
            if gold_clusters is not None:
                num_words = sum(map(len, sentences))
                kept = ([m for m in cluster if m[1] < num_words] for cluster in gold_clusters)
                gold_clusters = [cluster for cluster in kept if cluster]

        # OntoNotes puts a slash before some full stops and question marks.
        slashed = {"/.": ".", "/?": "?"}
        words = [slashed.get(word, word) for sentence in sentences for word in sentence]
        tokens, first, last = self._tokens(words)
        names = [NO_SPEAKER] * len(tokens)  # of special tokens
        for name, start, end in zip(itertools.chain(*speakers), first, last):
            names[start : end + 1] = [name] * (end - start + 1)
        text = TextField(tokens, self._token_indexers)
        metadata: Dict[str, Any] = {
            "original_text": [token.text for token in tokens],
            "sentence_lengths": self._sentence_lengths(sentences, first, len(tokens)),
            "speakers": names,
            "genre": genre,
            "document_key": document_key,
        }
        candidates = list(self._candidates(sentences, first, last))
        spans = ListField(
            [SpanField(start, end, text) for start, end in candidates]
            # There is no candidate if every word has more than `max_span_width` word pieces.
            or [SpanField(0, 0, text).empty_field()]
        )
        fields: Dict[str, Field] = {"text": text, "spans": spans}
        if gold_clusters is not None:
            clusters = [
                [(first[start], last[end]) for start, end in cluster]
                for cluster in merge_clusters(gold_clusters)
                if len(cluster) > self._remove_singleton_clusters
            ]
            metadata["clusters"] = clusters
            owners = {m: index for index, cluster in enumerate(clusters) for m in cluster}
            labels = [owners.get(candidate, -1) for candidate in candidates] or [-1]
            fields["span_labels"] = SequenceLabelField(labels, spans)
        fields["metadata"] = MetadataField(metadata)
        return Instance(fields)

    def _tokens(self, words: List[str]) -> Tuple[List[Token], List[int], List[int]]:
        """Return the tokens, and the indices of each word's first and last token."""
        if self._wordpiece_modeling_tokenizer is None:
            positions = list(range(len(words)))
            return [Token(word) for word in words], positions, positions
        tokens, offsets = self._wordpiece_modeling_tokenizer.intra_word_tokenize(words)
        for word, offset in zip(words, offsets):
            if offset is None:
                raise ValueError(
                    f"found {word!r}, of which wordpiece_modeling_tokenizer makes no piece"
                )
        pieces = [offset for offset in offsets if offset is not None]
        return tokens, [start for start, _ in pieces], [end for _, end in pieces]

    @staticmethod
    def _sentence_lengths(
        sentences: List[List[str]], first: List[int], num_tokens: int
    ) -> List[int]:
        """
        Return the number of tokens of each sentence. `first` holds the index of each word's first
        token. Special tokens around the document belong to its first and last sentence.
        """
        bounds = [*itertools.accumulate(map(len, sentences))]
        starts = [0, *(first[bound] for bound in bounds[:-1]), num_tokens]
        return [end - start for start, end in itertools.pairwise(starts)]

    def _candidates(
        self, sentences: List[List[str]], first: List[int], last: List[int]
    ) -> Iterator[Mention]:
        """Yield the first and the last token of each candidate span."""
        offset = 0
        for sentence in sentences:
            for start, end in enumerate_spans(sentence, offset, self._max_span_width):
                # Limit the number of word pieces too: the model embeds no larger width.
                if last[end] - first[start] < self._max_span_width:
                    yield first[start], last[end]
            offset += len(sentence)
