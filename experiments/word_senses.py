"""
Measure how well each layer separates the senses of a word:
`python -m experiments.word_senses [OPTIONS WEIGHTS]`.

Each sentence in examples/senses has an ambiguous word. Its predicted sense is that of the nearest
other use of the same word, by cosine, as in Peters et al. 2018 (section 5.3, on SemCor). Each
word has six uses, three per sense, so a random guess is right in two of five cases. If several uses
are equally near, as in the token layer, the score is the fraction of them with the right sense. The
program prints the scores. For the package's own biLM, it also writes results/word_senses/README.md.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy

from elmo_plugin import ElmoEmbedder
from elmo_plugin.bilm.files.atomic_write import atomic_write

ROOT = Path(__file__).parents[1]
# Two cosines count as equal if they differ by less than this.
TIED = 1e-4
LAYERS = ("token layer", "first LSTM layer", "second LSTM layer")

HEAD = """# Word senses

Each use of a word gets the sense of the nearest other use of the same word, by the cosine of their
vectors in one layer of the embedded biLM. Half of a word's uses have each of its two senses, so
chance is two in five. If several uses are equally near, as all are in the token layer, each counts
for its share. The sentences are ours (`examples/senses`). `python -m experiments.word_senses`
writes this page.

""".splitlines()


def main() -> None:
    """Score every layer and print the scores; for the embedded biLM, write the page of results."""
    lines = (ROOT / "examples" / "senses" / "sentences.tsv").read_text("utf-8").splitlines()
    uses = [tuple(line.split("\t")) for line in lines]
    embedder = ElmoEmbedder(*sys.argv[1:3])
    vectors = embedder.embed_batch([sentence.split() for _, _, sentence in uses])
    # Unit vectors of the words, shape (num_uses, num_layers, dim).
    rows = numpy.stack(
        [
            layers[:, [token.lower() for token in sentence.split()].index(word)]
            for layers, (word, _, sentence) in zip(vectors, uses, strict=True)
        ]
    )
    rows /= numpy.linalg.norm(rows, axis=-1, keepdims=True)
    right: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(LAYERS))
    pages = []
    for index, (word, sense, sentence) in enumerate(uses):
        others = [i for i, use in enumerate(uses) if use[0] == word and i != index]
        cells = []
        for layer in range(len(LAYERS)):
            cosines = rows[others, layer] @ rows[index, layer]
            nearest = [i for i, one in zip(others, cosines) if one > cosines.max() - TIED]
            same = [uses[i][1] == sense for i in nearest]
            right[word][layer] += sum(same) / len(same)
            mark = "" if same[0] else "**"
            cells.append(f"{mark}{uses[nearest[0]][2]}{mark}")
        pages.append((word, f"| {sense} | {sentence} | {cells[1]} | {cells[2]} |"))
    counts = {word: sum(use[0] == word for use in uses) for word, *_ in uses}
    text = [*HEAD, f"| word | uses | {' | '.join(LAYERS)} |", "|---" * (2 + len(LAYERS)) + "|"]
    for word, number in counts.items():
        text.append(f"| {word} | {number} | {' | '.join(f'{one:.3g}' for one in right[word])} |")
    sums = [sum(right[word][layer] for word in counts) for layer in range(len(LAYERS))]
    shares = " | ".join(f"**{total:.3g} ({100 * total / len(uses):.0f}%)**" for total in sums)
    text += [
        f"| all | {len(uses)} | {shares} |",
        "",
        "## The nearest uses",
        "",
        "Bold marks another sense.",
    ]
    for word in counts:
        text += [
            "",
            f"### {word}",
            "",
            f"| sense | sentence | {' | '.join(LAYERS[1:])} |",
            "|---|---|---|---|",
        ]
        text += [row for of, row in pages if of == word]
    if not sys.argv[1:]:
        with atomic_write(ROOT / "results" / "word_senses" / "README.md") as aside:
            aside.write_text("\n".join(text) + "\n", "utf-8")
    print("\n".join(text[len(HEAD) : len(HEAD) + 3 + len(counts)]))


if __name__ == "__main__":
    main()
