"""The vectors of a window of sentences, batch by batch."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy
import torch

from elmo_plugin.bilm.extraction.batches import Sentence, batches
from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
from elmo_plugin.bilm.extraction.settings import Extraction
from elmo_plugin.bilm.model.bilm import BiLm


class Piece(NamedTuple):
    """
    `place`: which sentence of the window. `first`: its first token here, not 0 in all but the first
    chunk of a long sentence. `vectors`: shape `(number of layers, n, embedding_dim)`, as stored.
    """

    place: int
    first: int
    vectors: numpy.ndarray


@torch.no_grad()
def window_vectors(
    bilm: BiLm, window: Sequence[Sentence], wanted: Extraction, batch_size: int | None = None
) -> Iterator[list[Piece]]:
    """
    # Parameters

    bilm : `BiLm`
        In evaluation mode.
    window : `Sequence[Sentence]`
        Sorted by length and run in batches; in carry, what is not blank is one batch.
    wanted : `Extraction`
        Which vectors, and how they are stored.
    batch_size : `Optional[int]`, optional (default = `None`)
        Sentences in a batch at most.

    # Returns

    `Iterator[list[Piece]]`
        What was run together: a batch, or a chunk of a sentence of more than `max_tokens`. All that
        is not blank comes, each token once.
    """
    # Places in the window of what is not blank; these are the rows of a carried batch.
    rows = [index for index, sentence in enumerate(window) if sentence.tokens]
    num_steps = [window[index].num_steps for index in rows]
    for batch in batches(num_steps, wanted.max_tokens, batch_size):
        places = [rows[row] for row in batch]
        sentences = [window[place].tokens for place in places]
        if len(sentences) == 1 and len(sentences[0]) + 2 > wanted.max_tokens:
            first = 0
            for chunk in layers_in_chunks(bilm, sentences[0], wanted.max_tokens, batch[0]):
                yield [Piece(places[0], first, _stored(chunk, wanted))]
                first += chunk.shape[1]
            continue
        ids = bilm.batch_to_ids(sentences).to(bilm.device)
        # Shape: (mixture_size, batch_size, num_tokens, embedding_dim)
        output = bilm.run(ids, bilm.start_states_of(batch))
        bilm.keep_states_of(batch, *output.end)
        array = _stored(torch.stack(output.layers)[:, :, 1:-1], wanted)
        yield [
            Piece(place, 0, array[:, row, : len(sentence)])
            for row, (place, sentence) in enumerate(zip(places, sentences))
        ]


def _stored(layers: torch.Tensor, wanted: Extraction) -> numpy.ndarray:
    if wanted.layers == "top":
        layers = layers[-1:]
    elif wanted.layers == "average":
        layers = layers.mean(dim=0, keepdim=True)
    return layers.to(getattr(torch, wanted.dtype)).cpu().numpy()
