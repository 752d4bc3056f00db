"""
Writes squad.json: predictions, marked answers, and what SQuAD 1.1's script says of each: the best
exact match and the best F1 (`exact_match_score` and `f1_score`).

    python tests/metrics/make_squad.py PATH_OF_evaluate-v1.1.py > tests/metrics/squad.json

The stored file is from the script's functions as in allenai/bi-att-flow, squad/evaluate-v1.1.py, at
a315bc8.
"""

import json
import random
import runpy
import sys

# Words that the normalisation changes, and some that it leaves alone.
WORDS = ["the", "The", "a", "an", "A", "cat", "Cat's", "cats", "U.S.", "US", "co-op", "coop", "3.5"]
WORDS += ["35", "$5", "5", "é", "É", "naïve", "—", "-", "...", "‘quoted’", "theatre", "an_apple"]
WORDS += ["of", "new", "New", "York", "don't", "dont", "İstanbul", "straße", "a-b", "the-cat"]
SPACES = [" ", " ", " ", "  ", "\t", " \n", "\u00a0"]


def text(generator):
    words = [generator.choice(WORDS) for _ in range(generator.choice([1, 1, 2, 2, 3, 4, 6]))]
    return "".join(word + generator.choice(SPACES) for word in words).strip(" ")


def changed(generator, answer):
    words = answer.split()
    if generator.random() < 0.3:
        words.pop(generator.randrange(len(words)))
    if generator.random() < 0.3:
        words.insert(generator.randint(0, len(words)), generator.choice(WORDS))
    return " ".join(words)


if __name__ == "__main__":
    script = runpy.run_path(sys.argv[1])
    generator = random.Random(20161111)
    cases = [["the", ["a"]], ["", ["the"]], ["", ["cat"]], ["The", ["cat", "an"]]]
    for _ in range(400):
        answers = [text(generator) for _ in range(generator.randint(1, 4))]
        cases.append([changed(generator, generator.choice(answers)), answers])
    for case in cases:
        prediction, answers = case
        case.append(max(int(script["exact_match_score"](prediction, one)) for one in answers))
        case.append(max(script["f1_score"](prediction, one) for one in answers))
    sys.stdout.write("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
