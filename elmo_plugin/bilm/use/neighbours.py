"""Nearest neighbours of a word in its sentence (Peters et al. 2018, Table 4)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional
from tqdm import tqdm

from elmo_plugin.bilm.extraction.batches import Sentence, batches, windows
from elmo_plugin.bilm.model.bilm import BiLm


class Neighbour(NamedTuple):
    """
    A word in a text. `similarity`: cosine, -1 to 1. `line`: from 1. `position`: the word's, from 0.
    """

    similarity: float
    line: int
    position: int
    tokens: list[str]

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
    The words of a text whose vectors are the most similar to that of a word in a sentence.

    # Parameters

    bilm : `BiLm`
        Primed or reset, so that vectors can be compared.
    query : `Sequence[str]`
        The sentence.
    position : `int`
        The word's place in it, from 0.
    sentences : `Iterable[Sentence]`
        The text; lines equal to the query and those longer than `max_tokens` are passed over.
    count : `int`, optional (default = `5`)
        Neighbours in each layer.
    same_word : `bool`, optional (default = `False`)
        Whether only the same word counts (letter case aside): which contexts use it alike.
    max_tokens : `int`, optional (default = `4096`)
        Positions run together at most.
    progress : `Optional[tqdm]`, optional (default = `None`)
        Moves on by one for every line.

    # Returns

    `list[list[Neighbour]]`
        For each layer, the nearest first. In the token layer, where context does not count, each
        word stands once; in the others each sentence does.

    # Raises

    `ValueError`
        If the query has no such position, or `count` is below 1.
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
    best: list[_Best] = [_Best(count) for _ in range(len(target))]
    line = 0
    for window in windows(sentences, max_tokens):
        numbered = [
            (line + number, sentence)
            for number, sentence in enumerate(window, start=1)
            if sentence.tokens and sentence.tokens != query and sentence.num_steps <= max_tokens
        ]
        line += len(window)
        for batch in batches([sentence.num_steps for _, sentence in numbered], max_tokens):
            lines = [numbered[index] for index in batch]
            vectors = _vectors(bilm, [sentence.tokens for _, sentence in lines])
            # Shape: (mixture_size, batch_size, num_tokens)
            cosines = torch.einsum("lbtd,ld->lbt", functional.normalize(vectors, dim=-1), target)
            # Equal vectors shall be equally near, whatever rounding made of them.
            similarity = cosines.round(decimals=5).tolist()
            for row, (number, (_, tokens)) in enumerate(lines):
                text = " ".join(tokens)
                places = [
                    place
                    for place, token in enumerate(tokens)
                    if not same_word or token.lower() == wanted
                ]
                for layer, found in enumerate(best):
                    scores = similarity[layer][row]
                    for place in places:
                        # What may not stand twice.
                        name = tokens[place] if layer == 0 else text
                        found.add(name, Neighbour(scores[place], number, place, tokens))
        if progress is not None:
            progress.update(len(window))
    return [found.sorted() for found in best]


class _Best:
    """The few nearest, each name once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.by_name: dict[str, Neighbour] = {}
        self.furthest: tuple[float, int, int] | None = None

    def add(self, name: str, neighbour: Neighbour) -> None:
        if self.furthest is not None and _order(neighbour) >= self.furthest:
            return
        known = self.by_name.get(name)
        if known is None or _order(neighbour) < _order(known):
            self.by_name[name] = neighbour
        if len(self.by_name) > self.count:
            del self.by_name[max(self.by_name, key=lambda name: _order(self.by_name[name]))]
        if len(self.by_name) == self.count:
            self.furthest = max(map(_order, self.by_name.values()))

    def sorted(self) -> list[Neighbour]:
        return sorted(self.by_name.values(), key=_order)


def _order(neighbour: Neighbour) -> tuple[float, int, int]:
    """Nearest first; of equals, the first in the text."""
    return -neighbour.similarity, neighbour.line, neighbour.position


def _vectors(bilm: BiLm, batch: list[list[str]]) -> torch.Tensor:
    """Shape `(mixture_size, batch_size, num_tokens, embedding_dim)`."""
    ids = bilm.batch_to_ids(batch)
    with torch.no_grad():
        activations = bilm(ids.to(next(bilm.parameters()).device))["activations"]
    return torch.stack(activations)[:, :, 1:-1]
