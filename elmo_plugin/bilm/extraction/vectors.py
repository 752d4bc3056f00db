"""Settings of an extraction, and computation of a window's vectors, batch by batch."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch

from elmo_plugin.bilm.extraction.batches import Sentence, batches
from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
from elmo_plugin.bilm.model.bilm import BiLm

LAYERS = ("all", "top", "average")
DTYPES = ("float32", "float16")
LAYOUTS = ("sentences", "ragged")


@dataclass(frozen=True)
class Extraction:
    """
    Settings of an extraction: which vectors to store, how to batch, and the file's layout.

    # Parameters

    layers : `str`, optional (default = `"all"`)
        `"all"` layers, the `"top"` layer, or the `"average"` of all layers.
    batch_size : `int | None`, optional (default = `None`)
        Largest number of sentences in a batch. By default 64 in state `"carry"`, otherwise as many
        as `max_tokens` allows.
    max_tokens : `int`, optional (default = `4096`)
        Largest number of tokens in a batch, with padding and boundaries. Longer sentences run in
        chunks of this many tokens. The limit changes vectors only by rounding.
    dtype : `str`, optional (default = `"float32"`)
        Dtype of the stored numbers. `"float16"` halves the size of the file and keeps about three
        significant digits. The biLM computes in its own precision in any case.
    layout : `str`, optional (default = `"sentences"`)
        `"sentences"`: one dataset per sentence, as in AllenNLP 0.9. `"ragged"`: one array for the
        tokens of all sentences, and an array of offsets.
    compress : `bool`, optional (default = `False`)
        Compress the datasets (gzip, lossless).
    forget_sentences : `bool`, optional (default = `False`)
        Leave the text out of the file.
    use_sentence_keys : `bool`, optional (default = `False`)
        Name each dataset by its sentence instead of its number; see `sentence_key`.

    # Raises

    `ValueError`
        If a value is not allowed, or two settings exclude each other.
    """

    layers: str = "all"
    batch_size: int | None = None
    max_tokens: int = 4096
    dtype: str = "float32"
    layout: str = "sentences"
    compress: bool = False
    forget_sentences: bool = False
    use_sentence_keys: bool = False

    def __post_init__(self) -> None:
        for name, known in (("layers", LAYERS), ("dtype", DTYPES), ("layout", LAYOUTS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, expected one of {', '.join(known)}"
                )
        for name, least in (("batch_size", 1), ("max_tokens", 3)):
            number = getattr(self, name)
            if number is None:
                continue
            if number < least:
                raise ValueError(f"{name} is {number}, expected {least} or more")
            # JSON takes no integers of NumPy.
            object.__setattr__(self, name, operator.index(number))
        if self.use_sentence_keys and self.layout == "ragged":
            raise ValueError(
                "use_sentence_keys was given with the ragged layout, which has no keys; expected "
                "one of the two"
            )


class Piece(NamedTuple):
    """
    Vectors of a sentence, or of one chunk of a long one: its index in the window, the index of the
    first token, and an array of shape `(number of stored layers, n, embedding_dim)`.
    """

    sentence: int
    first: int
    vectors: numpy.ndarray


@torch.no_grad()
def window_vectors(
    bilm: BiLm,
    window: Sequence[Sentence],
    wanted: Extraction,
    batch_size: int | None = None,
    report: Callable[[int], Any] = lambda count: None,
) -> Iterator[list[Piece]]:
    """
    Compute the vectors of a window of sentences, and yield a list of `Piece`s for each batch of at
    most `batch_size` sentences and `max_tokens` tokens.

    A longer sentence runs in chunks, each a piece; for `report`, see `layers_in_chunks`. Blank
    sentences have no piece. In state `"carry"`, the nth non-blank sentence continues row n.
    """
    # `rows[n]` is the index of the sentence in batch row n; blank sentences have no row.
    rows = [index for index, sentence in enumerate(window) if sentence.tokens]
    num_steps = [window[index].num_steps for index in rows]
    for batch in batches(num_steps, wanted.max_tokens, batch_size):
        indices = [rows[row] for row in batch]
        sentences = [window[index].tokens for index in indices]
        if len(sentences) == 1 and len(sentences[0]) + 2 > wanted.max_tokens:
            first = 0
            chunks = layers_in_chunks(bilm, sentences[0], wanted.max_tokens, batch[0], report)
            for chunk in chunks:
                yield [Piece(indices[0], first, _to_numpy(chunk, wanted))]
                first += chunk.shape[1]
            continue
        ids = bilm.batch_to_ids(sentences).to(bilm.device)
        # Shape: (mixture_size, batch_size, num_tokens, embedding_dim)
        output = bilm.run(ids, bilm.start_states(batch))
        bilm.keep_states(batch, *output.end)
        array = _to_numpy(torch.stack(output.tokens().layers), wanted)
        yield [
            Piece(index, 0, array[:, row, : len(sentence)])
            for row, (index, sentence) in enumerate(zip(indices, sentences))
        ]


def _to_numpy(layers: torch.Tensor, wanted: Extraction) -> numpy.ndarray:
    if wanted.layers == "top":
        layers = layers[-1:]
    elif wanted.layers == "average":
        layers = layers.mean(dim=0, keepdim=True)
    return layers.to(getattr(torch, wanted.dtype)).cpu().numpy()
