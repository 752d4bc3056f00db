"""
Nearest neighbours of a word in a text, by its vectors in context (Peters et al. 2018, Table 4).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional
from tqdm import tqdm

from elmo_plugin.bilm.extraction.batches import Sentence, batches, windows
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput


class Neighbour(NamedTuple):
    """
    Word in a text that is similar to a query word.

    `similarity`: cosine of the two vectors, from -1 to 1. `line`: number of the word's line in the
    text, from 1. `position`: index of the word in `tokens`, the words of that line, from 0.
    `num_lines`: number of lines with this word (token layer) or of identical lines (other layers).
    """

    similarity: float
    line: int
    position: int
    tokens: list[str]
    num_lines: int = 1

    @property
    def word(self) -> str:
        """The word itself."""
        return self.tokens[self.position]


def nearest_neighbours(
    bilm: BiLm,
    query: Sequence[str],
    position: int,
    sentences: Iterable[Sentence],
    count: int = 5,
    same_word: bool = False,
    max_tokens: int = 4096,
    progress: tqdm | None = None,
) -> list[list[Neighbour]]:
    """
    Find, in each layer, the words of a text whose vectors are most similar to that of a query word.

    The result is a list for each layer, with the most similar word first. The token layer ignores
    context, so its list has each word once. In the other layers, the list has at most one word of
    each distinct line. Lines that equal the query are left out, and so are lines of more than
    `max_tokens` tokens, boundaries included.

    `bilm` is in state `"primed"` or `"reset"`, so that vectors of different sentences are
    comparable. `position` is the index of the query word among the tokens `query`, from 0. Each
    layer has `count` neighbours, with `same_word` only occurrences of the query word itself, in any
    letter case. A batch has at most `max_tokens` tokens, with padding and boundaries. `progress`
    counts lines.

    Raise a `ValueError` if the query has no such position, or `count` is below 1.
    """
    query = list(query)
    if not 0 <= position < len(query):
        raise ValueError(
            f"position is {position}, expected that of a token of the query, which has {len(query)}"
        )
    if count < 1:
        raise ValueError(f"count is {count}, expected 1 or more")
    wanted = query[position].lower()
    target = functional.normalize(_vectors(bilm, [query])[:, 0, position], dim=-1)
    # In each layer, the nearest neighbours so far by word (token layer) or by text of the line.
    best: list[dict[str, Neighbour]] = [{} for _ in target]
    for window in windows(sentences, max_tokens):
        read = [
            sentence
            for sentence in window
            if sentence.tokens and sentence.tokens != query and sentence.num_steps <= max_tokens
        ]
        for batch in batches([sentence.num_steps for sentence in read], max_tokens):
            lines = [read[index] for index in batch]
            vectors = _vectors(bilm, [sentence.tokens for sentence in lines])
            # Shape: (mixture_size, batch_size, num_tokens)
            cosines = torch.einsum("lbtd,ld->lbt", functional.normalize(vectors, dim=-1), target)
            # Round, so that equal vectors have exactly equal similarities.
            similarity = cosines.round(decimals=5).tolist()
            for row, (_, tokens, _, number) in enumerate(lines):
                text = " ".join(tokens)
                positions = [
                    index
                    for index, token in enumerate(tokens)
                    if not same_word or token.lower() == wanted
                ]
                for layer, found in enumerate(best):
                    in_line: dict[str, Neighbour] = {}
                    for index in positions:
                        new = Neighbour(similarity[layer][row][index], number, index, tokens)
                        name = tokens[index] if layer == 0 else text
                        in_line[name] = min(in_line.get(name, new), new, key=_order)
                    for name, new in in_line.items():
                        if (known := found.get(name)) is not None:
                            new = min(known, new, key=_order)
                            new = new._replace(num_lines=known.num_lines + 1)
                        found[name] = new
            best = [
                dict(sorted(found.items(), key=lambda item: _order(item[1]))[:count])
                for found in best
            ]
        if progress is not None:
            progress.update(len(window))
    return [list(found.values()) for found in best]


def _order(neighbour: Neighbour) -> tuple[float, int, int]:
    """Return the sort key: by decreasing similarity, then by line and position."""
    return -neighbour.similarity, neighbour.line, neighbour.position


def _vectors(bilm: BiLm, batch: list[list[str]]) -> torch.Tensor:
    """Return a batch's layers, shape `(mixture_size, batch_size, num_tokens, embedding_dim)`."""
    with torch.no_grad():
        output = bilm(bilm.batch_to_ids(batch).to(bilm.device))
    return torch.stack(BiLmOutput.of(output).tokens().layers)


def in_context(tokens: Sequence[str], position: int, width: int) -> str:
    """Return a word in brackets and the words around it, in about `width` characters."""
    left, right = " ".join(tokens[:position]), " ".join(tokens[position + 1 :])
    room = max(width - len(tokens[position]) - 4, 0)
    half = room // 2
    left_room = max(half, room - len(right))
    right_room = max(room - half, room - len(left))
    if len(left) > left_room:
        left = "…" + left[len(left) - max(left_room - 1, 0) :]
    if len(right) > right_room:
        right = right[: max(right_room - 1, 0)] + "…"
    return " ".join(filter(None, (left, f"[{tokens[position]}]", right)))
