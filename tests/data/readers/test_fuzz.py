"""
Files that were changed at random: what a reader makes of one is what its text says, read here in
another way, or it is one error that names the file and the line.
"""

import json
import random
import re

import pytest
from allennlp.data.dataset_readers.dataset_utils import bio_tags_to_spans
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from elmo_plugin.data.readers.coref import read_documents
from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.data.readers.srl import SrlReader
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader
from elmo_plugin.metrics.srl_eval import read_phrases

NUM_MUTATIONS = 200

CONLL = (
    "-DOCSTART- -X- O O\n\nEyre NN O B-PER\nleft VB O O\nNew NN O B-LOC\nYork NN O I-LOC\n\n" * 2
)
SNLI = "".join(
    json.dumps({"gold_label": label, "sentence1": "A naïve dog .", "sentence2": "It barks ."})
    + "\n"
    for label in ("neutral", "entailment", "-", "contradiction")
)
SST = "(3 (2 It) (4 (2 really) (4 works)))\n(1 (2 A) (0 (1 très) (2 film)))\n" * 2
SRL = (
    "\n".join(
        f"doc 0 {number} {word} NN * - - - - * {first} {second} -" if word else ""
        for number, word, first, second in (
            (0, "She", "(ARG0*)", "*"),
            (1, "said", "(V*)", "*"),
            (2, "it", "(ARG1*", "(ARG0*)"),
            (3, "rained", "*)", "(V*)"),
            (0, "", "", ""),
            (0, "Où", "(ARGM-LOC*)", "*"),
            (1, "go", "(V*)", "(V*)"),
        )
    )
    + "\n"
)

COREF = "\n".join(
    [
        "#begin document (nw/a); part 000",
        *("nw/a 0 0 Où XX * - - - Al * (0)", "nw/a 0 1 est XX * - - - Al * -", ""),
        *("nw/a 0 0 le XX * - - - Bo * (1|(12", "nw/a 0 1 sien XX * - - - Bo * 1)|(0)|12)", ""),
        *("#end document", "#begin document (nw/b); part 000"),
        *("nw/b 0 0 Non XX * - - - - * -", "", "#end document", ""),
    ]
)

PIECES = [
    *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"\r\n", b"\0"),
    *(b" ", b"\t"),
    *(b"(", b")", b"*", b"((", b"{", b"}", b'"', b"[" * 5000, b"1" * 5000, b"\\ud800", b"\\u0000"),
    *(b"O", b"I-PER", b"L-PER", b"B-", b"7", b"x" * 300, "\u00a0".encode(), "\u2028".encode()),
]


def mutated(text, rng):
    """One to three changes of its bytes."""
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice([1, 2, 10, 50]))
        how = rng.randrange(6)
        if how == 0 and start < len(data):
            data[start] = rng.randrange(256)
        elif how == 1:
            del data[start:end]
        elif how == 2:
            data[start:start] = data[start:end]
        elif how == 3:
            del data[start:]
        elif how == 4:
            lines = bytes(data).split(b"\n")
            rng.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        else:
            data[start:start] = rng.choice(PIECES)
    return bytes(data)


def lines_of(data):
    text = data.decode("utf-8-sig")
    return re.split("\n", text) if "\n" in text else re.split("\r", text)


def blocks(data, is_end):
    block = []
    for line in [*lines_of(data), ""]:
        if is_end(line):
            if block:
                yield block
            block = []
        else:
            block.append(line)


def spans(tags):
    return set(bio_tags_to_spans([{"U": "B", "L": "I"}.get(t[0], t[0]) + t[1:] for t in tags]))


def conll(data):
    for block in blocks(data, lambda line: not line.strip() or line.split()[0] == "-DOCSTART-"):
        rows = [re.split("[ \t\r]+", line.strip(" \t\r")) for line in block]
        yield [row[0] for row in rows], spans(row[3] for row in rows)


def read_conll(path):
    for instance in Conll2003DatasetReader(convert_to_coding_scheme="BIOUL").read(path):
        yield instance["metadata"]["words"], spans(instance["tags"])


def snli(data):
    for line in lines_of(data):
        pair = json.loads(line) if line.strip() else {"gold_label": "-"}
        if pair.get("gold_label") != "-":
            sentences = [pair["sentence1"].split(), pair["sentence2"].split()]
            yield sentences, pair.get("gold_label")


def read_snli(path):
    for instance in SnliReader(WhitespaceTokenizer()).read(path):
        sentences = [[t.text for t in instance[name]] for name in ("premise", "hypothesis")]
        yield sentences, instance["label"].label if "label" in instance.fields else None


def sst(data):
    for line in lines_of(data):
        if line.strip():
            symbols = line.replace("(", " ( ").replace(")", " ) ").split()
            is_label = [before == "(" for before in ["", *symbols]]
            words = [s for s, label in zip(symbols, is_label) if not label and s not in "()"]
            yield words, symbols[1]


def read_sst(path):
    for instance in StanfordSentimentTreeBankDatasetReader().read(path):
        yield [token.text for token in instance["tokens"]], instance["label"].label


def srl(data):
    for block in blocks(data, lambda line: not line.split() or line.split()[0].startswith("#")):
        rows = [line.split() for line in block]
        words, frames = [row[3] for row in rows], []
        for column in range(11, len(rows[0]) - 1):
            tags = ["O"] * len(rows)
            for phrase in read_phrases([row[column] for row in rows]):
                if all(tags[i] == "O" for i in range(phrase.start, phrase.end + 1)):
                    inside = [f"I-{phrase.role}"] * (phrase.end - phrase.start)
                    tags[phrase.start : phrase.end + 1] = [f"B-{phrase.role}", *inside]
            if "B-V" in tags:
                frames.append(tags)
        for tags in frames or [["O"] * len(words)]:
            yield words, tags


def read_srl(path):
    for instance in SrlReader().read(str(path.parent)):
        yield instance["metadata"]["words"], instance["metadata"]["gold_tags"]


def coref(data):
    words, clusters, open_at = [], {}, {}
    for line in [*(line.strip(" \t\r") for line in lines_of(data)), "#end document"]:
        if line and not line.startswith("#"):
            columns = re.split("[ \t]+", line)
            for bracket in re.findall(r"\(\d+|\d+(?!\d*\()|\)", columns[-1]):
                if bracket.startswith("("):
                    open_at.setdefault(bracket[1:], []).append(len(words))
                    last = bracket[1:]
                elif bracket == ")":
                    mention = open_at[last].pop(), len(words)
                    clusters.setdefault(last, set()).add(mention)
                else:
                    last = bracket
            words.append(columns[3])
        elif line.startswith("#end document") and words:
            yield words, sorted(map(sorted, clusters.values()))
            words, clusters = [], {}


def read_coref(path):
    for document in read_documents(path):
        words = [word for sentence in document.sentences for word in sentence]
        yield words, sorted(sorted(set(cluster)) for cluster in document.clusters)


@pytest.mark.parametrize(
    ("text", "meant", "read"),
    [
        (CONLL, conll, read_conll),
        (SNLI, snli, read_snli),
        (SST, sst, read_sst),
        (SRL, srl, read_srl),
        (COREF, coref, read_coref),
    ],
    ids=["conll", "snli", "sst", "srl", "coref"],
)
def test_mutations(tmp_path, text, meant, read):
    path = tmp_path / "some.gold_conll"
    path.write_text(text, encoding="utf-8")
    assert list(read(path)) == list(meant(text.encode())) != []
    rng, num_read, complaints = random.Random(17), 0, []
    for _ in range(NUM_MUTATIONS):
        data = mutated(text, rng)
        path.write_bytes(data)
        try:
            found = list(read(path))
        except ValueError as error:
            complaints.append((type(error), str(error)))
        else:
            num_read += 1
            assert found == list(meant(data)), data
    for kind, message in complaints:
        assert kind is ValueError, message  # and no error of JSON or UTF-8, which knows no file
        assert str(path) in message or str(path.parent) in message, message
        assert re.search(r":\d+: |, line \d+", message) or "no " in message, message
        assert len(message) < 500 + len(str(path)), message
    # Neither were all changes harmless, nor was every file refused.
    assert 10 < num_read < NUM_MUTATIONS - 10
