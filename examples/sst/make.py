"""
Writes train.txt, dev.txt and test.txt beside itself: sentences about books, meals, walks and the
like as bracketed trees whose phrases carry a sentiment from 0 (very negative) to 4 (very positive),
as in the Stanford Sentiment Treebank. Words, grammar and the rules of composition are this file's
own.
`python examples/sst/make.py`
"""

import random
from pathlib import Path
from typing import NamedTuple

SIZES = {"train": 400, "dev": 120, "test": 120}

# Words by their sentiment, from -2 to 2.
ADJECTIVES = {
    -2: ["dreadful", "unbearable", "miserable", "revolting"],
    -1: ["dull", "noisy", "stale", "clumsy", "tired"],
    0: ["long", "square", "local", "green", "usual"],
    1: ["pleasant", "tidy", "fresh", "clever", "warm"],
    2: ["splendid", "delightful", "brilliant", "enchanting"],
}
THINGS = ["book", "meal", "walk", "concert", "garden", "letter", "lesson", "room", "journey"]
OWNERS = ["the", "this", "their", "our", "his"]
STRONG = ["very", "truly", "utterly"]
WEAK = ["rather", "slightly", "somewhat"]
VERBS = ["was", "is", "seemed", "felt", "remains"]


class Tree(NamedTuple):
    """A phrase: its sentiment from -2 to 2, and its words with the brackets inside."""

    sentiment: int
    inside: str

    def __str__(self) -> str:
        return f"({self.sentiment + 2} {self.inside})"


def word(text: str, sentiment: int = 0) -> Tree:
    """Make a phrase of a single word."""
    return Tree(sentiment, text)


def join(sentiment: int, left: Tree, right: Tree) -> Tree:
    """Join two phrases."""
    return Tree(sentiment, f"{left} {right}")


def sign(number: int) -> int:
    """Return the sign: -1, 0 or 1."""
    return (number > 0) - (number < 0)


def quality(rng: random.Random) -> Tree:
    """
    Make an adjective phrase: `very` strengthens, `rather` weakens, `not` reverses and weakens.
    """
    sentiment = rng.choice(list(ADJECTIVES))
    phrase = word(rng.choice(ADJECTIVES[sentiment]), sentiment)
    if rng.random() < 0.5:
        strength, adverbs = rng.choice([(2, STRONG), (1, WEAK)])
        phrase = join(sign(sentiment) * strength, word(rng.choice(adverbs)), phrase)
    if rng.random() < 0.25:
        phrase = join(-sign(phrase.sentiment), word("not"), phrase)
    return phrase


def clause(rng: random.Random) -> Tree:
    """Make a clause whose sentiment is that of its adjective phrase."""
    thing = join(0, word(rng.choice(OWNERS)), word(rng.choice(THINGS)))
    said = quality(rng)
    predicate = join(said.sentiment, word(rng.choice(VERBS)), said)
    return join(said.sentiment, thing, predicate)


def sentence(rng: random.Random) -> Tree:
    """Make one clause, or two: `but` takes the second's sentiment, `and` their mean, rounded up."""
    tree = clause(rng)
    if rng.random() < 0.6:
        second = clause(rng)
        link = rng.choice(["but", "and"])
        total = tree.sentiment + second.sentiment
        mean = sign(total) * ((abs(total) + 1) // 2)
        tail = join(second.sentiment, word(link), second)
        tree = join(second.sentiment if link == "but" else mean, tree, tail)
    return join(tree.sentiment, tree, word("."))


def make(seed: int = 5) -> dict[str, str]:
    """Return the text of each file by name; no sentence occurs twice."""
    rng = random.Random(seed)
    seen: set[str] = set()
    files = {}
    for split, size in SIZES.items():
        lines: list[str] = []
        while len(lines) < size:
            line = str(sentence(rng))
            if line not in seen:
                seen.add(line)
                lines.append(line)
        files[f"{split}.txt"] = "\n".join(lines) + "\n"
    return files


if __name__ == "__main__":
    for name, text in make().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
