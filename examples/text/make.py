"""
Writes train.txt and heldout.txt beside itself: tokenized sentences, one a line, made from this
file's own word lists and templates. `python examples/text/make.py`

A scene is a handful of sentences about one person in one place, so that what comes next depends on
the sentence before, and both directions have something to learn.
"""

import random
from pathlib import Path

SCENES = {"train": 180, "heldout": 30}

# Name, pronouns as subject, object and possessive.
PEOPLE: list[tuple[str, str, str, str]] = [
    ("Anna", "she", "her", "her"),
    ("Clara", "she", "her", "her"),
    ("Mrs. Lowell", "she", "her", "her"),
    ("the young teacher", "she", "her", "her"),
    ("Edwin", "he", "him", "his"),
    ("Mr. Hale", "he", "him", "his"),
    ("the old sailor", "he", "him", "his"),
    ("the miller", "he", "him", "his"),
]
OTHERS = ["a neighbour", "the doctor", "a stranger", "two children", "the postman", "her brother"]
PLACES = [
    ("harbour", "at", ["boats", "nets", "gulls", "ropes", "lamps"]),
    ("market", "at", ["apples", "baskets", "horses", "carts", "loaves"]),
    ("kitchen", "in", ["plates", "knives", "cups", "loaves", "candles"]),
    ("garden", "in", ["roses", "pears", "bees", "baskets", "stones"]),
    ("station", "at", ["trains", "tickets", "trunks", "clocks", "lamps"]),
    ("library", "in", ["books", "letters", "maps", "clocks", "candles"]),
    ("mill", "at", ["sacks", "wheels", "ropes", "stones", "mice"]),
]
TIMES = ["in the morning", "before noon", "towards evening", "at night", "on Sunday", "in winter"]
WEATHER = ["the rain fell softly", "the wind had dropped", "snow lay on the roofs", "it was hot"]
MOODS = ["tired", "glad", "afraid", "quiet", "angry", "curious", "proud"]
WATCHED = ["counted", "looked at", "cleaned", "carried away", "bought", "forgot", "painted"]
SAID = ["said", "asked", "answered", "whispered", "cried"]
SPOKEN = [
    ", I have waited for you since yesterday ,",
    ", there is nothing to be done ,",
    ", you may keep the money ,",
    ", we must go home before it is dark ,",
    ", nobody told me about the letter ,",
    ", that is the best news of the year ,",
]
NUMBERS = ["two", "three", "five", "seven", "a dozen"]
ENDINGS = [
    "So the day ended , and nobody spoke of it again .",
    "It was the last time that they met there .",
    "After that , everything was as it had been before .",
    "In the end the door was shut and the lamp put out .",
]


def scene(rng: random.Random) -> list[str]:
    """Make the sentences of one scene."""
    name, subject, thing_of, whose = rng.choice(PEOPLE)
    place, preposition, things = rng.choice(PLACES)
    mood = rng.choice(MOODS)
    thing, other_thing = rng.sample(things, 2)
    sentences = [
        rng.choice(
            [
                f"{name} came to the {place} {rng.choice(TIMES)} .",
                f"{rng.choice(TIMES)} {name} was {preposition} the {place} , and "
                f"{rng.choice(WEATHER)} .",
                f"there was nobody {preposition} the {place} but {name} .",
            ]
        )
    ]
    middle = [
        f"{subject} {rng.choice(WATCHED)} the {thing} and did not see the {other_thing} .",
        f"{subject} was {mood} , because the {thing} were gone .",
        f"{rng.choice(NUMBERS)} {thing} stood beside {whose} {other_thing} .",
        f"{rng.choice(OTHERS)} gave {thing_of} {rng.choice(NUMBERS)} {thing} for the {place} .",
        f"why did {subject} look so {mood} ?",
        f'" {name} {rng.choice(SPOKEN)} " {rng.choice(SAID)} {rng.choice(OTHERS)} .',
        f"if the {thing} are not sold {rng.choice(TIMES)} , {subject} will be {mood} .",
        f"{name} , who was never {mood} , {rng.choice(WATCHED)} {whose} {thing} at once .",
        f"from the {place} {subject} could hear the {other_thing} , though {rng.choice(WEATHER)} .",
    ]
    sentences += rng.sample(middle, rng.randint(2, 4))
    if rng.random() < 0.5:
        sentences.append(rng.choice(ENDINGS))
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def make() -> dict[str, str]:
    """Return the content of each file by name."""
    rng = random.Random(1802)
    return {
        f"{split}.txt": "".join(f"{sentence}\n" for _ in range(number) for sentence in scene(rng))
        for split, number in SCENES.items()
    }


if __name__ == "__main__":
    for name, text in make().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
