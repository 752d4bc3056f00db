"""
Writes {train,dev,test}/sample.gold_conll beside itself: sentences about a village, with the
predicates' arguments in the columns of CoNLL-2012. Words and sentence frames are this file's own.
`python examples/srl/make.py`
"""

import random
from pathlib import Path

SIZES = {"train": 220, "dev": 60, "test": 60}

WORDS = {
    "person": """the miller|my aunt|Tom|Clara|an old sailor|the new teacher|her brother|Mr. Webb
        |the baker 's wife|two young farmers|nobody|a stranger in a grey coat|they|she|he|we""",
    "thing": """a basket of apples|the blue door|three letters|his boots|a long rope
        |the broken clock|some bread|an umbrella|the map of the valley|her violin
        |two sacks of flour|a wooden chair""",
    "place": """in the market|behind the barn|near the old bridge|at the station|on the hill
        |under the lime trees|in the kitchen|by the river""",
    "time": """yesterday|last winter|before supper|every Sunday|at noon|after the storm
        |in the morning|on Monday""",
    "manner": "quietly|with great care|in a hurry|without a word|slowly|gladly",
    "state": "was closed|is far too narrow|looked empty|is for sale|was never finished",
    "moved": "sold/sell|carried/carry|mended/mend|found/find|washed/wash|hid/hide|painted/paint",
    "gave": "gave/give|lent/lend|sent/send|showed/show|offered/offer|promised/promise",
    "went": "arrived/arrive|waited/wait|slept/sleep|sang/sing|laughed/laugh|walked/walk",
    "said": "said/say|whispered/whisper|thought/think|wrote/write",
    "move": "sell/sell|carry/carry|mend/mend|find/find|wash/wash|hide/hide|paint/paint",
    "modal": "will|can|may|must|should",
}

# Chunks of a sentence, then for each predicate which chunks its arguments are.
FRAMES = """
person moved thing . # ARG0=0 V=1 ARG1=2
person moved thing place . # ARG0=0 V=1 ARG1=2 ARGM-LOC=3
time , person moved thing . # ARGM-TMP=0 ARG0=2 V=3 ARG1=4
person manner moved thing time . # ARG0=0 ARGM-MNR=1 V=2 ARG1=3 ARGM-TMP=4
person gave person thing . # ARG0=0 V=1 ARG2=2 ARG1=3
person gave thing to_person time . # ARG0=0 V=1 ARG1=2 ARG2=3 ARGM-TMP=4
thing was moved by_person . # ARG1=0 V=2 ARG0=3
thing was moved time . # ARG1=0 V=2 ARGM-TMP=3
person went place . # ARG0=0 V=1 ARGM-LOC=2
person went manner time . # ARG0=0 V=1 ARGM-MNR=2 ARGM-TMP=3
person modal not move thing . # ARG0=0 ARGM-MOD=1 ARGM-NEG=2 V=3 ARG1=4
person modal move thing place . # ARG0=0 ARGM-MOD=1 V=2 ARG1=3 ARGM-LOC=4
person who moved thing went place . # ARG0=0 R-ARG0=1 V=2 ARG1=3 # ARG0=0-3 V=4 ARGM-LOC=5
person moved thing and went . # ARG0=0 V=1 ARG1=2 # ARG0=0 V=4
person moved thing and gave person thing . # ARG0=0 V=1 ARG1=2 # ARG0=0 V=4 ARG2=5 ARG1=6
thing , said person , state . # ARG1=0 V=2 ARG0=3 C-ARG1=5
person said that person moved thing . # ARG0=0 V=1 ARG1=2-5 # ARG0=3 V=4 ARG1=5
when person went , person moved thing . # ARG0=1 V=2 # ARGM-TMP=0-2 ARG0=4 V=5 ARG1=6
thing that person moved state . # ARG1=0 R-ARG1=1 ARG0=2 V=3
person place ! #
no news time . #
"""

Frame = tuple[list[str], list[dict[str, tuple[int, int]]]]


def frames() -> list[Frame]:
    """The lines of `FRAMES`: chunk names, and the first and last chunk of every argument."""
    parsed = []
    for line in FRAMES.strip().splitlines():
        chunks, *predicates = line.split("#")
        spans = []
        for predicate in predicates:
            roles = {}
            for argument in predicate.split():
                role, _, where = argument.partition("=")
                first, _, last = where.partition("-")
                roles[role] = (int(first), int(last or first))
            if roles:
                spans.append(roles)
        parsed.append((chunks.split(), spans))
    return parsed


def rows(rng: random.Random, frame: Frame) -> list[list[str]]:
    """One sentence: word, lemma, and a bracketed cell for each predicate."""
    names, predicates = frame
    words: list[str] = []
    lemmas: list[str] = []
    starts, ends = [], []
    for name in names:
        before, _, kind = name.rpartition("_")
        text, _, lemma = rng.choice(WORDS.get(kind, name).split("|")).strip().partition("/")
        chunk = [*before.split(), *text.split()] if kind in WORDS else [name]
        starts.append(len(words))
        words += chunk
        lemmas += [lemma or "-"] + ["-"] * (len(chunk) - 1)
        ends.append(len(words) - 1)
    words[0] = words[0][0].upper() + words[0][1:]
    cells = [["*"] * len(words) for _ in predicates]
    for column, roles in zip(cells, predicates):
        for role, (first, last) in roles.items():
            column[starts[first]] = f"({role}*"
            column[ends[last]] += ")"
    return [list(row) for row in zip(words, lemmas, *cells)]


def conll(split: str, sentence: list[list[str]]) -> str:
    """A sentence in the columns of CoNLL-2012; what it does not say is `-`, `*` or XX."""
    last = len(sentence) - 1
    lines = []
    for position, (word, lemma, *cells) in enumerate(sentence):
        parse = ("(TOP" if position == 0 else "") + "*" + (")" if position == last else "")
        sense = "-" if lemma == "-" else "01"
        columns = [f"village/{split}", "0", str(position), word, "XX", parse, lemma, sense]
        lines.append("   ".join([*columns, "-", "-", "*", *cells, "-"]))
    return "\n".join(lines) + "\n\n"


def make() -> dict[str, str]:
    """Every file's path beside this one, and its text. No sentence is written twice."""
    rng = random.Random("srl")
    choices = frames()
    seen: set[str] = set()
    files = {}
    for split, number in SIZES.items():
        texts = []
        while len(texts) < number:
            sentence = rows(rng, rng.choice(choices))
            words = " ".join(row[0] for row in sentence)
            if words not in seen:
                seen.add(words)
                texts.append(conll(split, sentence))
        begin = f"#begin document (village/{split}); part 000\n"
        files[f"{split}/sample.gold_conll"] = begin + "".join(texts) + "#end document\n"
    return files


if __name__ == "__main__":
    for name, text in make().items():
        path = Path(__file__).parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
