"""
Writes conlleval.json: taggings, most of them ill-formed, and what the perl script `conlleval` of
CoNLL-2003's shared task (version 2004-01-26) prints for them.

    python tests/metrics/make_conlleval.py PATH_OF_THE_SCRIPT > tests/metrics/conlleval.json
"""

import json
import random
import subprocess
import sys


def random_tagging(generator, length):
    tags, kinds = [], ["O", "B", "I", "I"]
    for _ in range(length):
        prefix = generator.choice(kinds)
        tags.append("O" if prefix == "O" else f"{prefix}-{generator.choice(['PER', 'A-B', 'LOC'])}")
    return tags


def noisy(generator, tags):
    other = random_tagging(generator, len(tags))
    return [b if generator.random() < 0.2 else a for a, b in zip(tags, other, strict=True)]


def script_output(script, pairs):
    lines = []
    for gold, predicted in pairs:
        lines += [f"w {g} {p}" for g, p in zip(gold, predicted, strict=True)] + [""]
    return subprocess.run(
        ["perl", script], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    generator = random.Random(20040126)
    cases = []
    for _ in range(40):
        pairs = []
        for _ in range(generator.randint(1, 4)):
            gold = random_tagging(generator, generator.randint(1, 12))
            pairs.append((gold, noisy(generator, gold)))
        cases.append({"pairs": pairs, "output": script_output(sys.argv[1], pairs)})
    json.dump(cases, sys.stdout, indent=0)
    sys.stdout.write("\n")
