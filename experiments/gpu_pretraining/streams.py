"""Text as ids of types (distinct tokens), and the token streams of both directions on the GPU."""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE, batch_to_ids
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, read_sentences

# Number of character ids per token; fewer ids take less time. Longer words are cut. For words of at
# most 28 bytes and filters of width 6, the token vectors are the same as with the biLM's 50 ids.
MAX_CHARACTERS = 36


class Corpus(NamedTuple):
    """
    Training and held-out text as ids of types, with `</S>` after each sentence.

    `types`: the words of the softmax, then all other types; an id is an index in this list.
    `train`: ids of the training text. `heldout`: ids of each held-out text, by its name.
    """

    types: list[str]
    train: torch.Tensor
    heldout: dict[str, torch.Tensor]


def read_corpus(
    words: WordVocabulary, train: Sequence[Path], heldout: Mapping[str, Sequence[Path]]
) -> Corpus:
    """
    Read tokenized text, one sentence a line, and return it as a `Corpus`.

    Types of the training text that are not words of the softmax are sorted by frequency. Rare types
    thus get the largest ids, see `Trainer.num_slots`.
    """
    ids = dict(words.ids)
    read = _read_ids(train, ids)
    counts = numpy.bincount(read, minlength=len(ids))
    order = numpy.arange(len(ids))
    order[len(words) :] = len(words) + numpy.argsort(-counts[len(words) :], kind="stable")
    new_ids = numpy.empty(len(ids), dtype=numpy.int32)
    new_ids[order] = numpy.arange(len(ids))
    read = new_ids[read]
    types = list(ids)
    ids = {types[old]: new for new, old in enumerate(order)}
    others = {name: torch.from_numpy(_read_ids(paths, ids)) for name, paths in heldout.items()}
    return Corpus(list(ids), torch.from_numpy(read), others)


def _read_ids(paths: Sequence[Path], ids: dict[str, int]) -> numpy.ndarray:
    """Return the ids of a text, int32; add new types to `ids`."""
    end = ids[END_OF_SENTENCE]
    found = array("i")
    for path in paths:
        for tokens in read_sentences(path):
            found.extend([ids.setdefault(token, len(ids)) for token in tokens])
            found.append(end)
    return numpy.array(found, dtype=numpy.int32)


def character_table(types: Sequence[str], num_characters: int) -> torch.Tensor:
    """Return the character ids of all types, int16, shape `(num_types, num_characters)`."""
    return batch_to_ids([types], num_characters)[0].short()


class Streams:
    """
    Inputs and targets of both directions, as parallel streams of sentences without padding.

    In each pass, both directions read all sentences in new, independent random orders. Each stream
    reads a contiguous part of the shuffled text. The tokens after the last full batch of a pass are
    not used.

    # Parameters

    ids : `torch.Tensor`
        Text as ids of types, on the device of the batches. The last id must be that of `</S>`.
    words : `WordVocabulary`
        Words of the softmax. Other targets become `<UNK>`.
    batch_size, num_steps : `int`
        Number of streams, and number of tokens of each stream in a batch.
    shuffle : `bool`, optional (default = `True`)
        Whether to read the sentences in random order.
    seed : `int`, optional (default = `0`)
        Seed of the random orders.

    # Attributes

    num_batches : `int`
        Number of batches in a pass.
    num_passes : `int`
        Number of completed passes.

    # Raises

    `ValueError`
        If the text is shorter than one batch.
    """

    def __init__(
        self,
        ids: torch.Tensor,
        words: WordVocabulary,
        batch_size: int,
        num_steps: int,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        self.num_batches = len(ids) // batch_size // num_steps
        if self.num_batches == 0:
            raise ValueError(
                f"the text has {len(ids)} tokens and sentence ends, expected at least the "
                f"{batch_size * num_steps} of one batch"
            )
        self.batch_size, self.num_steps, self.shuffle = batch_size, num_steps, shuffle
        self._ids, self._words = ids.long(), words
        self._begin = words.ids[BEGIN_OF_SENTENCE]
        ends = (self._ids == words.ids[END_OF_SENTENCE]).nonzero().squeeze(1)
        self._starts = torch.cat([ends.new_zeros(1), ends[:-1] + 1])
        self._lengths = ends + 1 - self._starts
        self._generator = torch.Generator(ids.device).manual_seed(seed)
        self._next, self.num_passes = 0, 0
        self._read_pass()

    @property
    def passes(self) -> float:
        """Number of passes so far, including the finished part of the current one."""
        return self.num_passes + self._next / self.num_batches

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next inputs and targets, int32, shape `(2, num_steps, batch_size)` each."""
        if self._next == self.num_batches:
            self._next, self.num_passes = 0, self.num_passes + 1
            self._read_pass()
        self._next += 1
        return self.batch(self._next - 1)

    def batch(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return batch `index` of the current pass; `next_batch` gives the shapes."""
        steps = slice(index * self.num_steps, (index + 1) * self.num_steps)
        return self._inputs[:, steps], self._targets[:, steps]

    def _read_pass(self) -> None:
        directions = [self._direction(backward=False), self._direction(backward=True)]
        self._inputs, self._targets = (torch.stack(pair) for pair in zip(*directions))

    def _direction(self, backward: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the inputs and targets of one pass over the text in one direction, time-major."""
        num_sentences, device = len(self._starts), self._ids.device
        if self.shuffle:
            order = torch.randperm(num_sentences, device=device, generator=self._generator)
        else:
            order = torch.arange(num_sentences, device=device)
        lengths = self._lengths[order]
        # Start of each token's sentence, and offset of the token in it.
        starts = self._starts[order].repeat_interleave(lengths)
        offsets = torch.arange(len(starts), device=device)
        offsets -= (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        if backward:  # </S> wn ... w1 predicts wn ... w1 <S>
            last = lengths.repeat_interleave(lengths) - 1
            inputs = self._ids[starts + last - offsets]
            previous = self._ids[starts + (last - 1 - offsets).clamp(min=0)]
            targets = torch.where(offsets == last, self._begin, previous)
        else:  # <S> w1 ... wn predicts w1 ... wn </S>
            previous = self._ids[starts + (offsets - 1).clamp(min=0)]
            inputs = torch.where(offsets == 0, self._begin, previous)
            targets = self._ids[starts + offsets]
        targets = torch.where(targets < len(self._words), targets, self._words.unknown_id)
        return self._rows(inputs), self._rows(targets)

    def _rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Divide the tokens of a pass among the streams."""
        whole = ids[: self.batch_size * (len(ids) // self.batch_size)].view(self.batch_size, -1)
        return whole[:, : self.num_batches * self.num_steps].t().contiguous().int()
