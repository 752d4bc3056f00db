"""Documents cut into sentences, or to a window of sentences."""

from typing import Any, Dict, List, NamedTuple, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors


def from_metadata(metadata: Optional[List[Dict[str, Any]]], key: str) -> List[Any]:
    """
    # Parameters

    metadata : `List[Dict[str, Any]]`, optional
        One for each document.
    key : `str`

    # Returns

    `List[Any]`
        What stands under `key`, one for each document.

    # Raises

    `ValueError`
        If a document has no such key.
    """
    if metadata is None or any(key not in document for document in metadata):
        raise ValueError(
            f"found documents whose metadata has no {key!r}, which the model's arguments need; "
            "expected those of this package's reader `coref`"
        )
    return [document[key] for document in metadata]


def take_tokens(
    text: TextFieldTensors, index: torch.Tensor, mask: torch.Tensor
) -> TextFieldTensors:
    """
    # Parameters

    text : `TextFieldTensors`
        Each tensor of shape `(batch_size, num_tokens, ...)`.
    index : `torch.Tensor`
        Which tokens, counted through the batch, shape `(rows, columns)`.
    mask : `torch.Tensor`
        Which of them are real, shape `(rows, columns)`.

    # Returns

    `TextFieldTensors`
        The same with shape `(rows, columns, ...)`, padded with 0.

    # Raises

    `ConfigurationError`
        If an indexer's tensors do not have one row for each token.
    """
    shapes = {tensor.shape[:2] for tensors in text.values() for tensor in tensors.values()}
    if len(shapes) > 1:
        found = {
            name: [tuple(tensor.shape) for tensor in tensors.values()]
            for name, tensors in text.items()
        }
        raise ConfigurationError(
            f"found token indexers whose tensors have the shapes {found}, expected "
            "(batch_size, num_tokens, ...): only such text can be cut into sentences"
        )

    def take(tensor: torch.Tensor) -> torch.Tensor:
        taken = tensor.flatten(0, 1)[index]
        return taken.masked_fill(~mask.view(*mask.shape, *[1] * (taken.dim() - 2)), 0)

    return {
        name: {key: take(tensor) for key, tensor in tensors.items()}
        for name, tensors in text.items()
    }


class Sentences:
    """
    The sentences of a batch of documents, as a batch of their own.

    # Parameters

    lengths : `List[List[int]]`
        The tokens of each document's sentences.
    num_tokens : `int`
        Of a document, padding included.
    device : `torch.device`
    """

    def __init__(self, lengths: List[List[int]], num_tokens: int, device: torch.device) -> None:
        self._num_documents, self._num_tokens = len(lengths), num_tokens
        starts = []
        for document, numbers in enumerate(lengths):
            start = document * num_tokens
            for number in numbers:
                starts.append(start)
                start += number
        sizes = torch.tensor([number for numbers in lengths for number in numbers])
        steps = torch.arange(int(sizes.max()))
        self.mask = (steps < sizes.unsqueeze(1)).to(device)
        """Shape `(num_sentences, longest)`."""
        self._index = (torch.tensor(starts).unsqueeze(1) + steps).to(device) * self.mask

    def split(self, text: TextFieldTensors) -> TextFieldTensors:
        """
        # Parameters

        text : `TextFieldTensors`
            Of documents, `(batch_size, num_tokens, ...)`.

        # Returns

        `TextFieldTensors`
            Of sentences, `(num_sentences, longest, ...)`.
        """
        return take_tokens(text, self._index, self.mask)

    def join(self, vectors: torch.Tensor) -> torch.Tensor:
        """
        # Parameters

        vectors : `torch.Tensor`
            Of sentences, shape `(num_sentences, longest, dim)`.

        # Returns

        `torch.Tensor`
            Of documents, shape `(batch_size, num_tokens, dim)`; 0 at padding.
        """
        joined = vectors.new_zeros(self._num_documents * self._num_tokens, vectors.size(-1))
        joined = joined.index_copy(0, self._index[self.mask], vectors[self.mask])
        return joined.view(self._num_documents, self._num_tokens, -1)


class Documents(NamedTuple):
    """
    What the model's `forward` takes: text, candidate spans of shape `(batch_size, num_spans, 2)`,
    padded with -1, their clusters of shape `(batch_size, num_spans)`, and metadata.
    """

    text: TextFieldTensors
    spans: torch.Tensor
    span_labels: Optional[torch.Tensor]
    metadata: List[Dict[str, Any]]


def random_window(documents: Documents, max_sentences: int) -> Documents:
    """
    Of every longer document so many sentences in a row, beginning anywhere (Lee et al. 2017;
    e2e-coref at 53c4116, coref_model.py:122-145). Clusters of which one mention is left are left
    out of the metadata.

    # Parameters

    documents : `Documents`
    max_sentences : `int`

    # Returns

    `Documents`
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
        metadata.append(_cut(document, begin, end, numbers[first : first + max_sentences]))

    spans = documents.spans
    num_tokens = next(iter(next(iter(documents.text.values())).values())).size(1)
    begin = torch.tensor(begins, device=spans.device).unsqueeze(1)
    end = torch.tensor(ends, device=spans.device).unsqueeze(1)
    steps = torch.arange(int((end - begin).max()), device=spans.device)
    mask = steps < end - begin
    row = torch.arange(len(begins), device=spans.device).unsqueeze(1)
    index = (row * num_tokens + begin + steps) * mask

    inside = (spans[:, :, 0] >= begin) & (spans[:, :, 1] < end)
    # The spans inside come first, in their order.
    most = max(1, int(inside.sum(1).max()))  # where there is none at all, a padded one
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


def _cut(document: Dict[str, Any], begin: int, end: int, lengths: List[int]) -> Dict[str, Any]:
    """A document's metadata from one token to another."""
    cut = {**document, "sentence_lengths": lengths}
    for key in ("original_text", "speakers"):
        if key in document:
            cut[key] = document[key][begin:end]
    if "clusters" in document:
        clusters = [
            [
                (start - begin, last - begin)
                for start, last in cluster
                if begin <= start <= last < end
            ]
            for cluster in document["clusters"]
        ]
        cut["clusters"] = [
            cluster
            for cluster, whole in zip(clusters, document["clusters"])
            if len(cluster) > 1 or (cluster and len(whole) == 1)
        ]
    return cut
