"""
Writes {train,dev,test}.gold_conll beside itself: short talks of two people and short stories, with
chains of mentions in the columns of CoNLL-2012. Words and scenes are this file's own.
`python examples/coref/make.py`
"""

import random
import re
from collections import Counter
from pathlib import Path

SIZES = {"train": 40, "dev": 10, "test": 10}

WORDS = {
    "woman": "Nora|Ida|Clara|Mabel|Ruth|Greta",
    "man": "Otto|Felix|Hugo|Jonas|Arthur|Emil",
    "thing": """red kite|broken clock|wooden boat|blue umbrella|old violin|letter from the mayor
        |basket of plums|little brass key""",
    "place": """behind the mill|under the stairs|in the barn|at the station|near the bridge
        |on the kitchen table""",
}
PRONOUNS = {"woman": ("she", "her", "her"), "man": ("he", "him", "his")}

# `[x ...]` is a mention of chain x. Of the people p, q and r, `$p` is the name, and after it `.he`,
# `.him` and `.his` are the pronouns. A line begins with its speaker, or with `-`.
TALKS = """
p: Have [q you] seen [t [p my] $thing] ?
q: [q I] saw [t it] $place .
p: [p I] thought that [r $r] had taken [t it] .
q: No , [r $r.he] never touches [t it] .
===
p: [p I] lent [t the $thing] to [r $r] .
q: Did [r $r.he] give [t it] back to [p you] ?
p: Not yet , but [r $r.he] promised [p me] .
q: [q I] would not lend [r $r.him] anything .
===
p: [r $r] is waiting for [q you] $place .
q: What does [r $r.he] want from [q me] ?
p: [r $r.he] found [t [q your] $thing] .
q: Then [q I] must thank [r $r.him] for [t it] .
===
p: [q You] look tired today .
q: [q I] carried [t the $thing] all the way home .
p: Why did [r $r] not help [q you] with [t it] ?
q: [r $r.he] hurt [r $r.his] hand last week .
p: [p I] am sorry for [r $r.him] .
"""
STORIES = """
-: [p $p] bought [t a $thing] in town .
-: On the way home [p $p.he] met [q $q] .
-: [q $q.he] liked [t the $thing] very much .
-: So [p $p] gave [t it] to [q $q.him] .
===
-: [p $p] hid [t the $thing] $place .
-: Nobody was to find [t it] .
-: But [q $q] followed [p $p.him] and took [t it] away .
-: The next day [p $p] asked [q $q.him] about [t it] .
===
-: [p $p] lived with [q [p $p.his] cousin $q] .
-: Every evening [q $q] told [p $p.him] a story .
-: [p $p.he] wrote [q $q.his] stories down $place .
===
-: There stood [t a $thing] $place .
-: [p $p] looked at [t it] and laughed .
-: " Who left [t it] here ? " [p $p.he] asked [q $q] .
-: [q $q] knew , but [q $q.he] did not say .
"""
TOKEN = re.compile(r"\[([pqrt]) |(\])| ?([^\s\[\]]+)")

Row = tuple[str, str, str]


def choices(kind: str) -> list[str]:
    """Return the words of a kind."""
    return [" ".join(words.split()) for words in WORDS[kind].split("|")]


def scenes(text: str) -> list[list[str]]:
    """Split stories or talks into their lines."""
    return [scene.strip().split("\n") for scene in text.split("===")]


def filled(line: str, values: dict[str, str]) -> str:
    """Fill the placeholders of a line with words."""
    for name in sorted(values, key=len, reverse=True):
        line = line.replace(f"${name}", values[name])
    return line


def drawn(random_: random.Random) -> dict[str, str]:
    """Draw the words for the placeholders of one document."""
    names = [(name, gender) for gender in PRONOUNS for name in choices(gender)]
    values = {kind: random_.choice(choices(kind)) for kind in ("thing", "place")}
    for person, (name, gender) in zip("pqr", random_.sample(names, 3)):
        values[person] = name
        for case, pronoun in zip(("he", "him", "his"), PRONOUNS[gender]):
            values[f"{person}.{case}"] = pronoun
    return values


def rows(line: str, chains: dict[str, int]) -> list[tuple[str, str]]:
    """Return words and brackets; `chains` are the numbers of chains with at least two mentions."""
    words: list[str] = []
    starts: list[list[int]] = []
    ends: list[list[int]] = []
    open_chains: list[str] = []
    pending: list[int] = []
    for chain, closed, word in TOKEN.findall(line):
        if chain:
            open_chains.append(chain)
            pending += [chains[chain]] if chain in chains else []
        elif closed:
            chain = open_chains.pop()
            ends[-1] += [chains[chain]] if chain in chains else []
        else:
            words.append(word)
            starts.append(pending)
            ends.append([])
            pending = []
    cells = []
    for begun, ended in zip(starts, ends):
        single = [number for number in begun if number in ended]
        parts = [f"({n})" if n in single else f"({n}" for n in begun]
        parts += [f"{n})" for n in ended if n not in single]
        cells.append("|".join(parts) or "-")
    words[0] = words[0][0].upper() + words[0][1:]
    return list(zip(words, cells))


def document(kind: str, index: int, random_: random.Random) -> str:
    """Return one document in the format of a file."""
    key = f"{kind}/{index:03d}"
    scene = random_.choice(scenes(TALKS if kind == "talk" else STORIES))
    values = drawn(random_)
    lines = [(line[0], filled(line[3:], values)) for line in scene]
    counts = Counter(re.findall(r"\[([pqrt]) ", "\n".join(line for _, line in lines)))
    chains = {chain: number for number, chain in enumerate(counts) if counts[chain] > 1}
    text = [f"#begin document ({key}); part 000"]
    for speaker, line in lines:
        name = values.get(speaker, "-")
        for position, (word, cell) in enumerate(rows(line, chains)):
            text.append(f"{key}\t0\t{position}\t{word}\tXX\t*\t-\t-\t-\t{name}\t*\t{cell}")
        text.append("")
    return "\n".join([*text, "#end document"]) + "\n"


def make() -> dict[str, str]:
    """
    # Returns

    `Dict[str, str]`
        The files' contents by name.
    """
    random_ = random.Random(20)
    files = {}
    index = 0
    for split, size in SIZES.items():
        documents = []
        for number in range(size):
            documents.append(document(("talk", "story")[number % 2], index, random_))
            index += 1
        files[f"{split}.gold_conll"] = "".join(documents)
    return files


if __name__ == "__main__":
    for name, text in make().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
