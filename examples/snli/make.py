"""
Writes train.jsonl, dev.jsonl and test.jsonl beside itself: sentence pairs in SNLI's format, made
from this file's own word lists and templates. `python examples/snli/make.py`
"""

import json
import random
from pathlib import Path

SIZES = {"train": 400, "dev": 120, "test": 120}

# Who: the premise's words, and a more general expression.
PEOPLE = [
    ("an old man", "a man"),
    ("a tall man", "a man"),
    ("a young woman", "a woman"),
    ("a woman in a red coat", "a woman"),
    ("a little girl", "a child"),
    ("a small boy", "a child"),
    ("a farmer", "a person"),
    ("a nurse", "a person"),
    ("a student with a bag", "a student"),
    ("a baker in a white apron", "a baker"),
]
# What: the premise's words, something that follows, something that contradicts it.
ACTIONS = [
    ("is playing the violin", "is making music", "is asleep"),
    ("is riding a brown horse", "is on a horse", "is driving a bus"),
    ("is cutting bread with a knife", "is holding a knife", "is swimming"),
    ("is reading a thick book", "is reading", "is dancing with closed eyes"),
    ("is running after a dog", "is running", "is sitting still"),
    ("is painting a blue door", "is using paint", "is washing a car"),
    ("is singing an old song", "is singing", "is silent"),
    ("is carrying two buckets of water", "is carrying something", "has empty hands"),
    ("is repairing a bicycle", "is working on a bicycle", "is flying a kite"),
    ("is eating a green apple", "is eating", "is cooking dinner"),
]
# Where: the premise's words, a more general expression, another place.
PLACES = [
    ("in a crowded market", "in a market", "alone in a forest"),
    ("beside a quiet river", "near water", "on a roof in the city"),
    ("on a stone bridge", "on a bridge", "in a cellar"),
    ("in the kitchen", "indoors", "outside in the rain"),
    ("in a snowy field", "outdoors", "in a warm room"),
    ("behind an empty school", "near a school", "on a boat at sea"),
    ("under a large tree", "outdoors", "in a lift"),
    ("at the bus station", "at a station", "on top of a mountain"),
]
# What a premise never says.
GUESSES = [
    "is waiting for a friend",
    "is tired after a long day",
    "won a prize last year",
    "hopes to become famous",
    "does this every Sunday",
    "has three sisters",
    "will go home soon",
    "is thinking about money",
]
NOT_AGREED = 0.03  # share of the pairs with the label "-": SNLI's annotators disagree


def make_pair(rng: random.Random) -> dict[str, str]:
    """Make a premise that says who does what where, and a hypothesis about it."""
    who, someone = rng.choice(PEOPLE)
    does, implied, excluded = rng.choice(ACTIONS)
    where, around, elsewhere = rng.choice(PLACES)
    label, hypothesis = rng.choice(
        [
            ("entailment", rng.choice([f"{someone} {implied}", f"{someone} is {around}"])),
            ("contradiction", rng.choice([f"{someone} {excluded}", f"{someone} is {elsewhere}"])),
            ("neutral", f"{someone} {rng.choice(GUESSES)}"),
        ]
    )
    return {
        "gold_label": "-" if rng.random() < NOT_AGREED else label,
        "sentence1": as_sentence(f"{who} {does} {where}"),
        "sentence2": as_sentence(hypothesis),
    }


def as_sentence(words: str) -> str:
    """Add a capital and a full stop."""
    return f"{words[0].upper()}{words[1:]}."


def make(seed: int = 4) -> dict[str, str]:
    """Return the text of each file by name; no pair of sentences occurs twice."""
    rng = random.Random(seed)
    seen: set[tuple[str, str]] = set()
    files = {}
    for split, size in SIZES.items():
        lines: list[str] = []
        while len(lines) < size:
            pair = make_pair(rng)
            sentences = (pair["sentence1"], pair["sentence2"])
            if sentences not in seen:
                seen.add(sentences)
                lines.append(json.dumps({**pair, "pairID": f"{split}-{len(lines)}"}))
        files[f"{split}.jsonl"] = "\n".join(lines) + "\n"
    return files


if __name__ == "__main__":
    for name, text in make().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
