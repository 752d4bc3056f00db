"""Split documents into sentences, and crop documents to a window of sentences."""

from itertools import accumulate
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors


def from_metadata(metadata: Optional[List[Dict[str, Any]]], key: str) -> List[Any]:
    """Return the value of `key` in each document's metadata; a `ValueError` if one lacks it."""
    if metadata is None or any(key not in document for document in metadata):
        raise ValueError(
            f"found documents whose metadata has no {key!r}, which the model's arguments need; "
            "expected those of this package's reader `coref`"
        )
    return [document[key] for document in metadata]


def _take(tensor: torch.Tensor, index: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Flatten `tensor` over batch and tokens, and index it. Set 0 where `mask` is false."""
    taken = tensor.flatten(0, 1)[index]
    return taken.masked_fill(~mask.view(*mask.shape, *[1] * (taken.dim() - 2)), 0)


def take_tokens(
    text: TextFieldTensors, index: torch.Tensor, mask: torch.Tensor
) -> TextFieldTensors:
    """
    Rearrange the tokens of a batch of texts into other rows, such as sentences.

    `index` holds the index of the token to put at each position of the new rows. It refers to the
    batch flattened to `batch_size * num_tokens` tokens. `mask` is true for real tokens. Both have
    the shape `(num_rows, row_length)`. The tensors of `text` have the shape `(batch_size,
    num_tokens, ...)`, else a `ConfigurationError` is raised; those of the result `(num_rows,
    row_length, ...)`, with 0 at padding.
    """
    shapes = {tensor.shape[:2] for tensors in text.values() for tensor in tensors.values()}
    if len(shapes) > 1:
        found = {
            name: [tuple(tensor.shape) for tensor in tensors.values()]
            for name, tensors in text.items()
        }
        raise ConfigurationError(
            f"found token indexers whose tensors have the shapes {found}, expected "
            "(batch_size, num_tokens, ...): only such text can be split into sentences"
        )
    return {
        name: {key: _take(tensor, index, mask) for key, tensor in tensors.items()}
        for name, tensors in text.items()
    }


class Sentences:
    """
    Converter between a batch of documents and the batch of all their sentences.

    `lengths` holds the number of tokens in each sentence of each document. A row of the document
    batch has `num_tokens` tokens, padding included.
    """

    def __init__(self, lengths: List[List[int]], num_tokens: int, device: torch.device) -> None:
        self._num_documents, self._num_tokens = len(lengths), num_tokens
        starts = [
            document * num_tokens + start
            for document, numbers in enumerate(lengths)
            for start in list(accumulate(numbers, initial=0))[:-1]
        ]
        sizes = torch.tensor([number for numbers in lengths for number in numbers])
        steps = torch.arange(int(sizes.max()))
        self.mask = (steps < sizes.unsqueeze(1)).to(device)
        """Mask of the sentence batch, true for real tokens, shape `(num_sentences, max_length)`."""
        self._index = (torch.tensor(starts).unsqueeze(1) + steps).to(device) * self.mask

    def split(self, text: TextFieldTensors) -> TextFieldTensors:
        """Return the sentences' text, with tensors of shape `(num_sentences, max_length, ...)`."""
        return take_tokens(text, self._index, self.mask)

    def split_vectors(self, vectors: torch.Tensor) -> torch.Tensor:
        """
        Return the token vectors by sentence, shape `(num_sentences, max_length, dim)`, 0 at
        padding. `vectors` holds them by document, shape `(batch_size, num_tokens, dim)`.
        """
        return _take(vectors, self._index, self.mask)

    def join_vectors(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the token vectors by document, 0 at padding: the inverse of `split_vectors`."""
        joined = vectors.new_zeros(self._num_documents * self._num_tokens, vectors.size(-1))
        joined = joined.index_copy(0, self._index[self.mask], vectors[self.mask])
        return joined.view(self._num_documents, self._num_tokens, -1)


class Documents(NamedTuple):
    """
    Batch of documents, as passed to the coreference model's `forward`. `spans` holds the
    candidate spans, shape `(batch_size, num_spans, 2)`, padded with -1. `span_labels` holds the
    cluster number of each, or -1 for none, shape `(batch_size, num_spans)`.
    """

    text: TextFieldTensors
    spans: torch.Tensor
    span_labels: Optional[torch.Tensor]
    metadata: List[Dict[str, Any]]


def random_window(documents: Documents, max_sentences: int) -> Documents:
    """
    Crop each document to at most `max_sentences` consecutive sentences, from a random sentence on
    (e2e-coref at 53c4116, coref_model.py:122-145). A cluster that shrinks to a single mention is
    removed from the metadata.
    """
    lengths = from_metadata(documents.metadata, "sentence_lengths")
    if all(len(numbers) <= max_sentences for numbers in lengths):
        return documents
    begins, ends, metadata = [], [], []
    for document, numbers in zip(documents.metadata, lengths):
        first = 0
        if len(numbers) > max_sentences:
            first = int(torch.randint(len(numbers) - max_sentences + 1, ()))
        begin = sum(numbers[:first])
        end = begin + sum(numbers[first : first + max_sentences])
        begins.append(begin)
        ends.append(end)
        metadata.append(_crop(document, begin, end, numbers[first : first + max_sentences]))

    spans = documents.spans
    num_tokens = next(iter(next(iter(documents.text.values())).values())).size(1)
    begin = torch.tensor(begins, device=spans.device).unsqueeze(1)
    end = torch.tensor(ends, device=spans.device).unsqueeze(1)
    steps = torch.arange(int((end - begin).max()), device=spans.device)
    mask = steps < end - begin
    row = torch.arange(len(begins), device=spans.device).unsqueeze(1)
    index = (row * num_tokens + begin + steps) * mask

    inside = (spans[:, :, 0] >= begin) & (spans[:, :, 1] < end)
    # Move the spans inside the window to the front, in order, so that the rest can be cut off.
    most = max(1, int(inside.sum(1).max()))  # without any span, keep one column of padding
    kept = inside.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    inside = inside.gather(1, kept)
    labels = documents.span_labels
    moved = spans.gather(1, kept.unsqueeze(2).expand(-1, -1, 2)) - begin.unsqueeze(2)
    return Documents(
        take_tokens(documents.text, index, mask),
        moved.masked_fill(~inside.unsqueeze(2), -1),
        None if labels is None else labels.gather(1, kept).masked_fill(~inside, -1),
        metadata,
    )


def _crop(document: Dict[str, Any], begin: int, end: int, lengths: List[int]) -> Dict[str, Any]:
    """Crop a document's metadata to the tokens `begin` to `end - 1`."""
    cut = {**document, "sentence_lengths": lengths}
    for key in ("original_text", "speakers"):
        if key in document:
            cut[key] = document[key][begin:end]
    if "clusters" in document:
        cut["clusters"] = []
        for whole in document["clusters"]:
            inside = [(a - begin, b - begin) for a, b in whole if begin <= a <= b < end]
            if len(inside) > 1 or (inside and len(whole) == 1):
                cut["clusters"].append(inside)
    return cut
