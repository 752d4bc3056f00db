"""
Smooth a trained softmax.

The vectors of rare words move towards their neighbours.

    python -m experiments.smooth_softmax TRAINED OUT 'TEXT/train/*.txt'

The vector of a word that training has seen a few times fits these few places too closely. A word
that occurs n times gets (1 - a) w + a m, with a = STRENGTH / sqrt(n). Here w is its vector, and m
the mean vector of its NUM_NEIGHBOURS nearest words. Biases and the biLM stay as they are.

TRAINED has the files of an exported biLM. OUT gets the same files, in float16, with the new
softmax. `--max-words` keeps the first words of the vocabulary only.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import torch
from torch.nn import functional

from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE
from elmo_plugin.bilm.pretraining.export import export_bilm, first_words
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary, find_text_files, read_sentences
from elmo_plugin.bilm.use.scoring import load_with_softmax

NUM_NEIGHBOURS, STRENGTH = 10, 1.5
WORDS_AT_ONCE = 1024


def smoothed(weight: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """
    Return new vectors, each mixed with the mean of its nearest neighbours: the rarer the word, the
    larger the mean's share. The module's docstring has the formula. Neighbours are the words of
    highest cosine after the mean of all vectors is subtracted.

    `weight` has the softmax's vectors, shape `(num_words, projection_dim)`, and `counts` how often
    each word occurs in the training text, shape `(num_words,)`.
    """
    directions = functional.normalize(weight - weight.mean(dim=0), dim=1)
    neighbours = torch.empty_like(weight)
    for start in range(0, len(weight), WORDS_AT_ONCE):
        similarity = directions[start : start + WORDS_AT_ONCE] @ directions.t()
        rows = torch.arange(len(similarity))
        similarity[rows, start + rows] = -torch.inf  # a word is not its own neighbour
        nearest = similarity.topk(min(NUM_NEIGHBOURS, len(weight) - 1), dim=1).indices
        neighbours[start : start + len(rows)] = weight[nearest].mean(dim=1)
    share = (STRENGTH / counts.clamp(min=1).sqrt()).clamp(max=1).unsqueeze(1)
    return torch.lerp(weight, neighbours, share)


def target_counts(words: WordVocabulary, paths: list[Path]) -> torch.Tensor:
    """Return how often a direction predicts each word of the vocabulary in a pass over the text."""
    counts: Counter[int] = Counter()
    for path in paths:
        for tokens in read_sentences(path):
            counts.update(words.ids.get(token, words.unknown_id) for token in tokens)
            counts.update((words.ids[BEGIN_OF_SENTENCE], words.ids[END_OF_SENTENCE]))
    return torch.tensor([float(counts[number]) for number in range(len(words))])


def main() -> None:
    """Parse the arguments and write the smoothed files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("trained", type=Path, help="folder of an exported biLM with its softmax")
    parser.add_argument("out", type=Path, help="folder of the smoothed files, made if missing")
    parser.add_argument("text", help="path or glob of the training text, one sentence a line")
    parser.add_argument("--max-words", type=int, help="number of words kept (default: all)")
    args = parser.parse_args()
    try:
        bilm, softmax, words = load_with_softmax(args.trained)
        counts = target_counts(words, find_text_files(args.text))
        with torch.no_grad():
            softmax.weight.copy_(smoothed(softmax.weight, counts))
        if args.max_words is not None and args.max_words < len(words):
            words, softmax = first_words(words, softmax, args.max_words)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    export_bilm(bilm, args.out, vocabulary=words, softmax=softmax, dtype="float16")


if __name__ == "__main__":
    main()
