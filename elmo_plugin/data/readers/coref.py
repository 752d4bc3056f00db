"""Reader of coreference chains in the columns of the CoNLL-2012 shared task (OntoNotes 5)."""

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Field, Instance, Token, TokenIndexer
from allennlp.data.dataset_readers.dataset_reader import PathOrStr
from allennlp.data.dataset_readers.dataset_utils import enumerate_spans
from allennlp.data.fields import ListField, MetadataField, SequenceLabelField, SpanField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from elmo_plugin.data.coref_documents import Document, Mention, read_documents

NO_SPEAKER = "-"


def merge_clusters(clusters: Iterable[Iterable[Mention]]) -> List[List[Mention]]:
    """
    # Parameters

    clusters : `Iterable[Iterable[Mention]]`
        Clusters, some of which may share a mention.

    # Returns

    `List[List[Mention]]`
        Each in order of tokens; a cluster that shares a mention with an earlier one is added to
        it.
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
class ConllCorefReader(DatasetReader):
    """
    Reads a file of documents in CoNLL-2012's columns, or all files of a directory whose names end
    in `gold_conll`, at any depth, in the order of their paths. One document is one instance.

    An instance has `text`; `spans`, the candidates: all spans of at most `max_span_width` tokens
    within a sentence; `span_labels`, the cluster of each, -1 for none; and `metadata` with
    `original_text`, the tokens; `clusters`; and, which allennlp-models' reader of this name has
    not: `sentence_lengths` in tokens, `speakers` of the tokens, `genre`, what stands before the
    first `/` in the document's key (empty if there is none), and `document_key`.

    Registered as a `DatasetReader` with name "coref".

    # Parameters

    max_span_width : `int`
        The most tokens of a candidate span.
    token_indexers : `Dict[str, TokenIndexer]`, optional (default = `None`)
        `{"tokens": SingleIdTokenIndexer()}` if not given.
    wordpiece_modeling_tokenizer : `PretrainedTransformerTokenizer`, optional (default = `None`)
        Cuts the words into pieces, which are the tokens then.
    max_sentences : `int`, optional (default = `None`)
        Keep the first so many sentences of a document. `None`: all.
    remove_singleton_clusters : `bool`, optional (default = `False`)
        Whether to leave out clusters of one mention.

    # Raises

    `ValueError`
        When read: no file, or, with path and line, one that is not well-formed.
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
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        if max_span_width < 1:
            raise ConfigurationError(f"found max_span_width {max_span_width}, expected 1 or more")
        if max_sentences is not None and max_sentences < 1:
            raise ConfigurationError(f"found max_sentences {max_sentences}, expected 1 or more")
        self._max_span_width = max_span_width
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._wordpiece_modeling_tokenizer = wordpiece_modeling_tokenizer
        self._max_sentences = max_sentences
        self._remove_singleton_clusters = remove_singleton_clusters

    def _read(self, file_path: str) -> Iterator[Instance]:
        for document in self.shard_iterable(self._documents(cached_path(file_path))):
            yield self.text_to_instance(
                document.sentences,
                document.clusters,
                document.speakers,
                document.key.partition("/")[0] if "/" in document.key else "",
                document.key,
            )

    def _documents(self, file_path: PathOrStr) -> Iterator[Document]:
        path = Path(file_path)
        paths = [path]
        if path.is_dir():
            paths = sorted(found for found in path.rglob("*gold_conll") if found.is_file())
            if not paths:
                raise ValueError(f"{path}: found no *gold_conll file in this directory")
        for one in paths:
            yield from read_documents(one)

    def text_to_instance(
        self,
        sentences: List[List[str]],
        gold_clusters: Optional[List[List[Mention]]] = None,
        speakers: Optional[List[List[str]]] = None,
        genre: str = "",
        document_key: str = "",
    ) -> Instance:
        """
        # Parameters

        sentences : `List[List[str]]`
            The words of each sentence.
        gold_clusters : `List[List[Mention]]`, optional (default = `None`)
            Clusters of mentions, each the first and the last word, counted through the document.
            Clusters that share a mention are joined.
        speakers : `List[List[str]]`, optional (default = `None`)
            The speaker of each word, by sentence; `None`: no speaker is known.
        genre : `str`, optional (default = `""`)
            The document's; empty if it is not known.
        document_key : `str`, optional (default = `""`)
            The document's name.

        # Returns

        `Instance`

        # Raises

        `ValueError`
            If there are no words, or not as many speakers as words.
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

        words = [_normalize(word) for sentence in sentences for word in sentence]
        names = [name for sentence in speakers for name in sentence]
        tokens, first, last = self._tokens(words)
        lengths = self._sentence_lengths(sentences, first, len(tokens))
        if self._wordpiece_modeling_tokenizer is not None:
            names = _spread(names, first, last, len(tokens))
        # A worker process hands fields on without indexers; `apply_token_indexers` adds them.
        text = TextField(tokens, None if self.get_worker_info() else self._token_indexers)
        metadata: Dict[str, Any] = {
            "original_text": [token.text for token in tokens],
            "sentence_lengths": lengths,
            "speakers": names,
            "genre": genre,
            "document_key": document_key,
        }
        candidates = list(self._candidates(sentences, first, last))
        spans = ListField(
            [SpanField(start, end, text) for start, end in candidates]
            # Every word may have more pieces than a span.
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

    def apply_token_indexers(self, instance: Instance) -> None:
        """
        # Parameters

        instance : `Instance`
            Its tokens get the reader's indexers.
        """
        instance["text"].token_indexers = self._token_indexers  # type: ignore[attr-defined]

    def _tokens(self, words: List[str]) -> Tuple[List[Token], List[int], List[int]]:
        """The tokens, and each word's first and last token."""
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
        """In tokens; special tokens belong to the first and the last sentence."""
        bounds = [0, *accumulate(map(len, sentences))]
        starts = [0, *(first[bound] for bound in bounds[1:-1]), num_tokens]
        return [end - start for start, end in pairwise(starts)]

    def _candidates(
        self, sentences: List[List[str]], first: List[int], last: List[int]
    ) -> Iterator[Mention]:
        """First and last token of each candidate span."""
        offset = 0
        for sentence in sentences:
            for start, end in enumerate_spans(sentence, offset, self._max_span_width):
                # Of as many words, and then of as many pieces: the width's embedding ends there.
                if last[end] - first[start] < self._max_span_width:
                    yield first[start], last[end]
            offset += len(sentence)


def _normalize(word: str) -> str:
    """OntoNotes writes some full stops and question marks with a slash."""
    return word[1:] if word in ("/.", "/?") else word


def _spread(names: List[str], first: List[int], last: List[int], num_tokens: int) -> List[str]:
    """The speaker of each token; none for special tokens."""
    spread = [NO_SPEAKER] * num_tokens
    for name, start, end in zip(names, first, last):
        spread[start : end + 1] = [name] * (end - start + 1)
    return spread
