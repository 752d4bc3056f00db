"""
Makes `srl_eval.json`: what the CoNLL-2005 script itself counts on random and ill-formed columns.

    python tests/metrics/make_srl_eval.py PATH/srl-eval.pl

The script is not part of this repository (allennlp-models 2.10.1 carries it, in
`structured_prediction/tools`); perl is needed. The columns are made here, from a seed.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from elmo_plugin.metrics.srl_eval import convert_bio_tags_to_conll_format

EXPECTED = Path(__file__).with_name("srl_eval.json")
ROLES = ["V", "C-V", "A0", "A1", "C-A0", "C-A1", "C-C-A1", "R-A0", "C-R-A0", "AM-TMP", "C-AM-TMP"]


def well_formed(rng, length):
    tags = []
    while len(tags) < length:
        role = rng.choice(ROLES)
        size = rng.randint(1, 3)
        tags += ["O"] * size if rng.random() < 0.4 else ["B-" + role] + ["I-" + role] * (size - 1)
    return tags[:length]


def ill_formed(rng, length):
    tags = ["O", *(f"{prefix}-{role}" for prefix in "BI" for role in ROLES[:6])]
    return [rng.choice(tags) for _ in range(length)]


def nested(rng, length):
    """A bracketed column whose spans hold others, some of them with the same tokens."""
    opened, closed = [""] * length, [""] * length

    def fill(start, end, depth):
        while start < end:
            stop = rng.randint(start + 1, end)
            if rng.random() < 0.6:
                for _ in range(rng.choice([1, 1, 2])):
                    role = rng.choice(ROLES)
                    opened[start] += "(" + role
                    closed[stop - 1] = rng.choice([")", ")", role + ")"]) + closed[stop - 1]
                    if rng.random() < 0.6 and depth < 2:
                        fill(start, stop, depth + 1)
                        break
            start = stop

    fill(0, length, 0)
    # An inner span's end must stand before an outer one's: without roles any order is right.
    return [o + "*" + ")" * c.count(")") for o, c in zip(opened, closed, strict=True)]


def changed(rng, column):
    """Another column that shares most spans with this one."""
    tags = list(column)
    for _ in range(rng.randint(0, 2)):
        tags[rng.randrange(len(tags))] = rng.choice(["O", *(f"B-{role}" for role in ROLES)])
    return tags


def cases(seed, number):
    """Propositions `(verb_index, words, predicted, gold)`, columns in brackets."""
    rng = random.Random(seed)
    made = []
    for _ in range(number):
        length = rng.randint(1, 9)
        words = [rng.choice(["runs", "-", "a"]) for _ in range(length)]
        verb_index = rng.choice([None, *range(length)] + [rng.randrange(length)] * length)
        kind = rng.choice([well_formed, well_formed, ill_formed, nested])
        if kind is nested:
            columns = [nested(rng, length)]
            columns.append(rng.choice([columns[0], nested(rng, length)]))
        else:
            gold = kind(rng, length)
            predicted = rng.choice([changed(rng, gold), changed(rng, gold), kind(rng, length)])
            columns = [convert_bio_tags_to_conll_format(tags) for tags in (predicted, gold)]
        made.append((verb_index, words, *columns))
    return made


def run_script(script, propositions):
    """`{role: [correct, excess, missed]}` as the script prints them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("predicted", "gold")]
        for path, column in zip(paths, (2, 3), strict=True):
            with path.open("w") as file:
                for proposition in propositions:
                    verb_index, words = proposition[:2]
                    for position, cell in enumerate(proposition[column]):
                        verb = words[position] if position == verb_index else "-"
                        file.write(f"{verb} {cell}\n")
                    file.write("\n")
        printed = subprocess.run(
            ["perl", script, paths[1], paths[0]], capture_output=True, text=True, check=True
        ).stdout
    rows = [line.split() for line in printed.splitlines()]
    return {
        row[0]: [int(number) for number in row[1:4]]
        for row in rows
        if len(row) == 7 and row[0] != "Overall"
    }


if __name__ == "__main__":
    made = [cases(seed, 12) for seed in range(12)]
    stored = [{"cases": batch, "counts": run_script(sys.argv[1], batch)} for batch in made]
    EXPECTED.write_text(json.dumps(stored, separators=(",", ":")) + "\n")
    print(f"{sum(map(len, made))} propositions, {EXPECTED.stat().st_size} bytes")
