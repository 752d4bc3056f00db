"""
Writes train.json, dev.json and test.json beside itself: passages with questions and answers in
SQuAD 1.1's format, made from this file's own word lists and templates.
`python examples/squad/make.py`
"""

import json
import random
from pathlib import Path
from typing import Any

SIZES = {"train": 48, "dev": 12, "test": 12}  # passages
FACTS_OF_A_PASSAGE = 5

# No two splits share people or places, so that answers cannot be memorized.
PEOPLE = [
    "Anna Holm",
    "Peter Vane",
    "Ruth Calder",
    "Tomas Reyes",
    "Ines Falk",
    "Hugo Lind",
    "Clara Boone",
    "Martin Osei",
    "Elsa Dorn",
    "Victor Hale",
    "Nora Quist",
    "Samuel Brandt",
    "Olga Prins",
    "Daniel Moor",
    "Marta Solis",
    "Felix Arden",
    "Judith Kroll",
    "Simon Tey",
    "Helen Marsh",
    "Arthur Beck",
]
PLACES = [
    "Ashford Hill",
    "Lower Brook",
    "the Stone Valley",
    "Port Garrow",
    "Greenwater",
    "the Isle of Fenn",
    "Northgate",
    "Larch Bay",
    "the Upper Moors",
    "Saltmere",
    "Weston Cross",
    "the Grey Coast",
    "Elder Lake",
    "Kingsfield",
    "the Old Harbour",
    "Rowan Point",
]
BUILDINGS = ["mill", "lighthouse", "bridge", "chapel", "school", "library", "theatre", "bakery"]
MATERIALS = ["grey stone", "red brick", "oak", "white marble", "clay", "dark iron"]
REASONS = [
    "the old one had burned down",
    "the town had grown too fast",
    "a storm had damaged the shore",
    "the farmers needed more room",
    "many ships were lost in the fog",
    "the winter had been so hard",
]
USES = [
    "a museum of boats",
    "a concert hall",
    "an inn for travellers",
    "a home for artists",
    "a shop for old books",
    "a station for the coast guard",
]
ANIMALS = ["swallows", "grey owls", "wild cats", "bats", "pigeons", "foxes"]
MONTHS = ["March", "April", "May", "June", "September", "October"]

# A sentence, a question, and its answers as parts of the sentence: first the usual one, marked by
# two of three annotators, then that of the third.
FACTS = [
    (
        "The {building} was designed by {person}.",
        "Who designed the {building}?",
        ["{person}", "by {person}"],
    ),
    (
        "It was opened in {month} {year}, after {number} years of work.",
        "When was the {building} opened?",
        ["{month} {year}", "{year}"],
    ),
    (
        "The {building} stands in {place}, a short walk from the river.",
        "Where does the {building} stand?",
        ["{place}", "in {place}"],
    ),
    (
        "Its walls are made of {material}, and the roof is covered with slate.",
        "What are the walls of the {building} made of?",
        ["{material}", "of {material}"],
    ),
    (
        "The work was paid for by {donor}, who gave {money} dollars.",
        "Who paid for the {building}?",
        ["{donor}", "{donor}, who gave {money} dollars"],
    ),
    (
        "People say that it cost {money} dollars and the work of {number} families.",
        "How much did the {building} cost?",
        ["{money} dollars", "{money}"],
    ),
    (
        "It was built because {reason}.",
        "Why was the {building} built?",
        ["{reason}", "because {reason}"],
    ),
    (
        "Today the {building} is {use}, and children may visit it free of charge.",
        "What is the {building} today?",
        ["{use}", "{use}"],
    ),
    (
        "Under the roof live {count} {animals}, which return every spring.",
        "Which animals live under the roof of the {building}?",
        ["{animals}", "{count} {animals}"],
    ),
    (
        "A tower of {height} metres was added later by {builder}.",
        "How high is the tower of the {building}?",
        ["{height} metres", "{height}"],
    ),
]


def paragraph(generator: random.Random, name: str, split: list[str], number: int) -> dict[str, Any]:
    """Make one passage with its questions and their answers."""
    person, donor, builder = generator.sample(split, 3)
    share = len(PLACES) // 3
    start = list(SIZES).index(name) * share
    words = {
        "person": person,
        "donor": donor,
        "builder": builder,
        "building": generator.choice(BUILDINGS),
        "place": generator.choice(PLACES[start : start + share]),
        "material": generator.choice(MATERIALS),
        "reason": generator.choice(REASONS),
        "use": generator.choice(USES),
        "animals": generator.choice(ANIMALS),
        "month": generator.choice(MONTHS),
        "year": generator.randint(1710, 1935),
        "number": generator.randint(3, 19),
        "count": generator.randint(20, 90),
        "height": generator.randint(21, 78),
        "money": f"{generator.randint(2, 80)},000",
    }
    facts = generator.sample(FACTS, FACTS_OF_A_PASSAGE)
    # A sentence with "it" cannot come first.
    facts.sort(key=lambda fact: "{building}" not in fact[0])
    rest = facts[1:]
    generator.shuffle(rest)
    facts = [facts[0], *rest]
    context = " ".join(fact[0] for fact in facts).format(**words)
    questions = []
    for index, (sentence, question, answers) in enumerate(facts):
        said = sentence.format(**words)
        first = context.index(said)
        texts = [answer.format(**words) for answer in answers]
        marked = texts[:1] if name == "train" else [texts[0], texts[0], texts[1]]
        questions.append(
            {
                "id": f"{name}-{number}-{index}",
                "question": question.format(**words),
                "answers": [
                    {"text": text, "answer_start": first + said.index(text)} for text in marked
                ],
            }
        )
    return {"context": context, "qas": questions}


def make() -> dict[str, str]:
    """Return the content of each file by name."""
    generator = random.Random(11)
    files, start = {}, 0
    for name, size in SIZES.items():
        people = 10 if name == "train" else 5
        split, start = PEOPLE[start : start + people], start + people
        paragraphs = [paragraph(generator, name, split, number) for number in range(size)]
        data = {"version": "1.1", "data": [{"title": "Buildings", "paragraphs": paragraphs}]}
        files[f"{name}.json"] = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    return files


if __name__ == "__main__":
    for name, text in make().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
