"""
Train word vectors on the text that a biLM was trained on, and write them in GloVe's format.

    pip install -r requirements-word-vectors.txt        # gensim, in an environment of its own
    python experiments/word_vectors.py vectors.txt.gz text/train/*.txt --dim 100

They are skip-gram vectors with negative sampling (Mikolov et al. 2013), trained by gensim. Because
its learning rate falls during training, the lines of all files are interleaved. Otherwise the last
file would get only a small rate. Words are in lower case, as in GloVe and the task configs. Vectors
are reproducible with one worker and `PYTHONHASHSEED=0`.
"""

import argparse
import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gensim.models import FastText, Word2Vec


class Sentences:
    """
    Iterable of the tokenized lines of all files. The lines of each file are spread evenly over the
    whole iteration.
    """

    def __init__(self, paths: list[Path], lowercase: bool) -> None:
        self.paths = [path for path in paths if path.stat().st_size]
        self.lowercase = lowercase

    def __iter__(self) -> Iterator[list[str]]:
        largest = max(path.stat().st_size for path in self.paths)
        files = [path.open(encoding="utf-8") for path in self.paths]
        # Size of each file divided by that of the largest one.
        shares = [path.stat().st_size / largest for path in self.paths]
        read = [0] * len(files)
        done = 0
        while files_left := [index for index, file in enumerate(files) if not file.closed]:
            done += 1 << 16
            for index in files_left:
                while read[index] < done * shares[index] or done >= largest:
                    line = files[index].readline()
                    if not line:
                        files[index].close()
                        break
                    read[index] += len(line.encode())
                    words = (line.lower() if self.lowercase else line).split()
                    if words:
                        yield words


def write(vectors: Any, path: Path) -> None:
    """Write the vectors atomically, as lines `word number number ...`, the most frequent first."""
    aside = path.with_name(path.name + ".part")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(aside, "wt", encoding="utf-8") as out:
        for word, vector in zip(vectors.index_to_key, vectors.vectors):
            out.write(f"{word} {' '.join(f'{value:.4f}' for value in vector)}\n")
    aside.replace(path)


def main() -> None:
    """Train the word vectors, and write them to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("output", type=Path, help="file to write, .gz for a zipped one")
    parser.add_argument("text", nargs="+", type=Path, help="tokenized text, a sentence a line")
    parser.add_argument("--kind", choices=["word2vec", "fasttext"], default="word2vec")
    parser.add_argument("--dim", type=int, default=100, help="width of the vectors (default: 100)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the text (default: 3)")
    parser.add_argument("--min-count", type=int, default=5, help="drop rarer words (default: 5)")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="threads; results vary with more than 1",
    )
    parser.add_argument("--keep-case", action="store_true", help="do not convert to lower case")
    args = parser.parse_args()
    if not args.output.parent.is_dir():
        parser.error(f"{args.output.parent} does not exist, expected the folder of the output")
    start = time.time()
    train = Word2Vec if args.kind == "word2vec" else FastText
    model = train(
        Sentences(sorted(args.text), lowercase=not args.keep_case),
        vector_size=args.dim,
        epochs=args.epochs,
        min_count=args.min_count,
        workers=args.workers,
        sg=1,
        window=5,
        negative=8,
        sample=1e-4,
        seed=1,
    )
    write(model.wv, args.output)
    tokens = model.corpus_total_words
    print(
        f"{len(model.wv)} vectors of {args.dim} numbers, {args.kind}, {args.epochs} passes over "
        f"{tokens} tokens in {time.time() - start:.0f} s: {args.output}"
    )


if __name__ == "__main__":
    main()
