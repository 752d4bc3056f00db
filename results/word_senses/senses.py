"""
Which layer tells a word's senses apart: `python results/word_senses/senses.py [OPTIONS WEIGHTS]`.

Each of the sentences in examples/senses is left out in turn, and its word gets the sense of the
nearest other use of the same word, by cosine (Peters et al. 2018, section 5.3, has it on SemCor).
Half of the uses of every word have each sense, so of the others two in five have the one left out.
Of uses that are equally near each counts for its share: the token layer knows the word alone.
Writes README.md beside this file, of the embedded biLM: the scores, and every word's nearest uses
to read. Of another biLM it prints the scores.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy

from elmo_plugin import ElmoEmbedder
from elmo_plugin.bilm.files.whole_file import whole_file

HERE = Path(__file__).parent
# Cosines that differ by less are the same.
TIED = 1e-4
LAYERS = ("token layer", "first LSTM layer", "second LSTM layer")

HEAD = """# Word senses

Each use of a word gets the sense of the nearest other use of the same word, by the cosine of its
vectors in one layer of the embedded biLM; half of the uses have each of two senses, so of the
others two in five are right by chance. Of uses that are equally near each counts for its share: the
token layer knows the word alone. The sentences are ours (`examples/senses`);
`python results/word_senses/senses.py` writes this page.

""".splitlines()


def main() -> None:
    """Scores and writes."""
    lines = (HERE / "../../examples/senses/sentences.tsv").read_text("utf-8").splitlines()
    uses = [tuple(line.split("\t")) for line in lines]
    embedder = ElmoEmbedder(*sys.argv[1:3])
    vectors = embedder.embed_batch([sentence.split() for _, _, sentence in uses])
    # Of the word itself, shape (num_uses, num_layers, dim), of length 1.
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
        "Bold: another sense.",
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
        with whole_file(HERE / "README.md") as aside:
            aside.write_text("\n".join(text) + "\n", "utf-8")
    print("\n".join(text[len(HEAD) : len(HEAD) + 3 + len(counts)]))


if __name__ == "__main__":
    main()
