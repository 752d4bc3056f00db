"""
Word vectors of the text that a biLM was trained on, in GloVe's format.

    pip install -r requirements-word-vectors.txt        # gensim, in an environment of its own
    python results/word_vectors/train.py vectors.txt.gz text/train/*.txt --dim 100

Skip-gram with negative sampling (Mikolov et al. 2013), by gensim. All files are read side by side,
since gensim's learning rate falls as it reads: file after file, the last source would be learnt at
a small rate only. Words are in lower case, as GloVe's are and as the task configs look them up. One
worker, the fixed seed and `PYTHONHASHSEED=0` give the same vectors again.
"""

import argparse
import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gensim.models import FastText, Word2Vec


class Sentences:
    """The lines of text files as tokens; files side by side, in proportion to their lengths."""

    def __init__(self, paths: list[Path], lowercase: bool) -> None:
        self.paths = [path for path in paths if path.stat().st_size]
        self.lowercase = lowercase

    def __iter__(self) -> Iterator[list[str]]:
        largest = max(path.stat().st_size for path in self.paths)
        files = [path.open(encoding="utf-8") for path in self.paths]
        # How far each file is to be read after each share of the largest one.
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
    """`word number number ..` a line, by falling frequency; whole or not at all."""
    aside = path.with_name(path.name + ".part")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(aside, "wt", encoding="utf-8") as out:
        for word, vector in zip(vectors.index_to_key, vectors.vectors):
            out.write(f"{word} {' '.join(f'{value:.4f}' for value in vector)}\n")
    aside.replace(path)


def main() -> None:
    """Trains and writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("output", type=Path, help="file to write, .gz for a zipped one")
    parser.add_argument("text", nargs="+", type=Path, help="tokenized text, a sentence a line")
    parser.add_argument("--kind", choices=["word2vec", "fasttext"], default="word2vec")
    parser.add_argument("--dim", type=int, default=100, help="of the vectors (default: 100)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the text (default: 3)")
    parser.add_argument("--min-count", type=int, default=5, help="rarer words are left out")
    parser.add_argument("--workers", type=int, default=1, help="threads; more are not repeatable")
    parser.add_argument("--keep-case", action="store_true", help="no lower case")
    args = parser.parse_args()
    if not args.output.parent.is_dir():
        parser.error(f"{args.output.parent} is not there, expected the folder of the output")
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
