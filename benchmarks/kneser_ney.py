"""
Interpolated Kneser-Ney 5-gram model, to compare its perplexity with a biLM's forward one.

    python benchmarks/kneser_ney.py --train 'train/*.txt' --heldout 'heldout/*.txt' --min-count 5
    python benchmarks/kneser_ney.py --train 'train/*.txt' --heldout 'modern/*.txt' 'novels/*.txt' \
      --vocabulary vocabulary.txt

The model uses modified discounts (Chen and Goodman 1999). For a comparison, give it the biLM's
training text and vocabulary. Rare words are <UNK> as targets and, unlike in a biLM, in the history.
Sentence ends are predicted, but not sentence beginnings, and no history crosses a beginning. The
program prints a perplexity for each held-out path or glob. 70 million tokens take about 6 GB.
"""

import argparse
import json
import math
import sys
from array import array
from pathlib import Path
from typing import NamedTuple

import numpy

from elmo_plugin.bilm.pretraining.vocabulary import (
    WordVocabulary,
    find_text_files,
    read_sentences,
    vocabulary_of,
)

BEGIN, END = 0, 1  # the ids of <S> and </S>


class Order(NamedTuple):
    """
    Table of all n-grams of length n, sorted by key. The key is `context * num_words + word`, where
    `context` is the row number of the first n-1 words in the table of (n-1)-grams.

    `counts` has the adjusted count of each n-gram. For each context, `totals` has the sum of these
    counts, and `backoffs` the sum of discounts. `discounts` has the discounts for the counts 0, 1,
    2, and 3 or more.
    """

    keys: numpy.ndarray
    counts: numpy.ndarray
    totals: numpy.ndarray
    backoffs: numpy.ndarray
    discounts: numpy.ndarray


class KneserNey:
    """
    Interpolated Kneser-Ney model, trained by its constructor.

    # Parameters

    tokens : `numpy.ndarray`
        Word ids of the training text. A sentence is `order - 1` times <S>, its words, and </S>.
    num_words : `int`
        Size of the vocabulary.
    order : `int`, optional (default = `5`)
        Length of the longest n-gram.
    """

    def __init__(self, tokens: numpy.ndarray, num_words: int, order: int = 5) -> None:
        self.num_words = num_words
        predicted = numpy.flatnonzero(tokens != BEGIN).astype(numpy.int32)
        # rows[n][i]: row number, in the table of n-grams, of the n-gram that ends at token i.
        rows = [numpy.zeros(len(tokens), dtype=numpy.int32)]
        keys, counts, places = [], [], []
        for _ in range(order):
            ngrams = numpy.zeros(len(tokens), dtype=numpy.int64)
            ngrams[1:] = rows[-1][:-1]
            ngrams *= num_words
            ngrams += tokens
            unique, place, inverse = distinct(ngrams)
            del ngrams
            rows.append(inverse)
            keys.append(unique)
            ending = inverse[predicted]
            counts.append(numpy.bincount(ending, minlength=len(unique)).astype(numpy.int32))
            place[ending] = predicted
            places.append(place)
        self.orders: list[Order] = []
        for n in range(1, order + 1):
            count, place = counts[n - 1], places[n - 1]
            seen = count > 0
            if n < order:
                # The adjusted count is the number of distinct preceding words; if the n-gram begins
                # with <S>, it is the plain count.
                longer = places[n][counts[n] > 0]
                preceded = numpy.bincount(rows[n][longer], minlength=len(count))
                count = numpy.where(
                    tokens[numpy.maximum(place - n + 1, 0)] == BEGIN, count, preceded
                )
            context = rows[n - 1][numpy.maximum(place - 1, 0)] if n > 1 else numpy.zeros_like(place)
            num_contexts = len(keys[n - 2]) if n > 1 else 1
            self.orders.append(_order(keys[n - 1], count * seen, context, num_contexts))

    def log_probabilities(self, tokens: numpy.ndarray) -> numpy.ndarray:
        """Return the log probability of every token but <S>, for `tokens` as in `KneserNey`."""
        contexts = numpy.zeros(len(tokens), dtype=numpy.int64)
        # The uniform distribution leaves out <S>, which is never predicted.
        probability = numpy.full(len(tokens), 1.0 / (self.num_words - 1))
        for order in self.orders:
            keys = numpy.where(contexts >= 0, contexts * self.num_words + tokens, -1)
            found = numpy.minimum(numpy.searchsorted(order.keys, keys), len(order.keys) - 1)
            found = numpy.where(order.keys[found] == keys, found, -1)
            count = numpy.where(found >= 0, order.counts[found], 0)
            total = numpy.where(contexts >= 0, order.totals[contexts], 0)
            discounted = count - order.discounts[numpy.minimum(count, 3)]
            probability = numpy.where(
                total > 0,
                (discounted + order.backoffs[contexts] * probability) / numpy.maximum(total, 1),
                probability,
            )
            contexts = numpy.concatenate([[-1], found[:-1]])
        return numpy.log(probability[tokens != BEGIN])


def distinct(values: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Return unique values, first indices and inverse, like `numpy.unique` but in less memory."""
    by_value = numpy.argsort(values, kind="stable").astype(numpy.int32)
    ordered = values[by_value]
    is_new = numpy.ones(len(values), dtype=bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    unique = ordered[is_new]
    del ordered
    inverse = numpy.empty(len(values), dtype=numpy.int32)
    inverse[by_value] = numpy.cumsum(is_new, dtype=numpy.int32) - 1
    return unique, by_value[is_new], inverse


def _order(
    keys: numpy.ndarray, counts: numpy.ndarray, contexts: numpy.ndarray, num_contexts: int
) -> Order:
    n1, n2, n3, n4 = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    discounts = numpy.zeros(4)
    if n1 and n2 and n3 and n4:
        y = n1 / (n1 + 2 * n2)
        discounts[1:] = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
    else:
        discounts[1:] = 0.5, 0.75, 0.75  # the text is too short to estimate discounts
    backoffs = numpy.bincount(
        contexts, weights=discounts[numpy.minimum(counts, 3)], minlength=num_contexts
    )
    totals = numpy.bincount(contexts, weights=counts, minlength=num_contexts)
    return Order(keys, counts, totals, backoffs, discounts)


def encode(paths: list[Path], vocabulary: WordVocabulary, order: int) -> numpy.ndarray:
    """Return the word ids of text files in one array, padded as `KneserNey` needs them."""
    ids = array("i")
    for path in paths:
        for sentence in read_sentences(path):
            ids.extend([BEGIN] * (order - 1))
            ids.extend(vocabulary.id(word) for word in sentence)
            ids.append(END)
    return numpy.frombuffer(ids, dtype=numpy.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--train", required=True, help="path or glob of the training text")
    parser.add_argument(
        "--heldout", required=True, nargs="+", help="paths or globs of held-out text, a domain each"
    )
    parser.add_argument("--min-count", type=int, default=1, help="rarer words are <UNK>")
    parser.add_argument("--vocabulary", help="a vocabulary file, in place of --min-count")
    parser.add_argument("--order", type=int, default=5, help="length of the longest n-gram")
    args = parser.parse_args()
    train = find_text_files(args.train)
    vocabulary = (
        WordVocabulary.from_file(args.vocabulary)
        if args.vocabulary
        else vocabulary_of(train, args.min_count)
    )
    model = KneserNey(encode(train, vocabulary, args.order), len(vocabulary), args.order)
    domains = {}
    for pattern in args.heldout:
        per_file, every = {}, []
        for path in find_text_files(pattern):
            every.append(model.log_probabilities(encode([path], vocabulary, args.order)))
            per_file[path.name] = round(math.exp(-every[-1].mean()), 2)
        domains[pattern] = {
            "heldout_tokens": sum(len(logs) for logs in every),
            "forward_perplexity": round(math.exp(-numpy.concatenate(every).mean()), 2),
            "per_file": per_file,
        }
    figures = {"order": args.order, "num_words": len(vocabulary), "domains": domains}
    json.dump(figures, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
