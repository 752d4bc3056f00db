import logging
import random
from unittest import mock

import pytest
from allennlp.data.dataset_readers.conll2003 import Conll2003DatasetReader as StockReader
from allennlp.data.fields import SequenceLabelField, TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from tests.metrics.test_conlleval import well_formed

IOB1 = """-DOCSTART- -X- -X- O

U.N. NNP I-NP I-ORG
official NN I-NP O
Anna NNP I-NP I-PER
Lee NNP I-NP I-PER
Bo NNP B-NP B-PER
left VBD I-VP O
Rome NNP I-NP I-LOC

Peter NNP I-NP I-PER
"""
BIO = (
    "Anna NNP B-NP B-PER\nLee NNP I-NP I-PER\nBo NNP B-NP B-PER\nsat VBD B-VP O\n\n"
    "in IN B-PP O\nRome NNP B-NP B-LOC\n"
)
BIOUL = (
    "Anna NNP B-NP B-PER\nLee NNP L-NP L-PER\nBo NNP U-NP U-PER\nsat VBD U-VP O\n\n"
    "in IN U-PP O\nRome NNP U-NP U-LOC\n"
)


@pytest.fixture
def written(tmp_path):
    def write(text, name="data.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def content(field):
    if isinstance(field, SequenceLabelField):
        return field.labels, field._label_namespace
    return [token.text for token in field] if isinstance(field, TextField) else field.metadata


def contents(instances):
    """Everything in the instances that a model can see, comparable."""
    return [{name: content(field) for name, field in i.fields.items()} for i in instances]


def tags(path, **arguments):
    arguments.setdefault("convert_to_coding_scheme", "BIOUL")
    return [instance["tags"].labels for instance in Conll2003DatasetReader(**arguments).read(path)]


@pytest.mark.parametrize("text", [IOB1, BIO], ids=["iob1", "bio"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"convert_to_coding_scheme": "BIOUL"},
        {"coding_scheme": "BIOUL"},
        {"coding_scheme": "IOB1"},
        {"tag_label": "pos", "feature_labels": ["ner", "chunk"]},
        {"tag_label": "chunk", "convert_to_coding_scheme": "BIOUL", "label_namespace": "x"},
        {"tag_label": None, "feature_labels": ["pos", "ner"]},
        {"max_instances": 1},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*coding_scheme.*:DeprecationWarning")
def test_instances_equal_stock_reader(written, text, arguments):
    path = written(text)
    ours = list(Conll2003DatasetReader(**arguments).read(path))
    stock = list(StockReader(**arguments).read(path))
    assert len(ours) > 0
    assert contents(ours) == contents(stock)


def test_random_files_equal_stock_reader_in_iob1_and_bio(written):
    generator = random.Random(1)
    for trial in range(30):
        sentences = []
        for _ in range(5):
            tags = well_formed(generator, ("IOB1", "BIO")[trial % 2], 9)
            words = (f"w{generator.randint(0, 99)}" for _ in tags)
            sentences.append(
                "".join(f"{word}\tNN\tI-NP\t{tag}\n" for word, tag in zip(words, tags))
            )
        path = written("\n".join(sentences))
        for scheme in (None, "BIOUL"):
            ours = Conll2003DatasetReader(convert_to_coding_scheme=scheme).read(path)
            stock = StockReader(convert_to_coding_scheme=scheme).read(path)
            assert contents(ours) == contents(stock)


@pytest.mark.parametrize(
    ("text", "scheme"), [(IOB1, "IOB1"), (BIO, "BIO"), (BIOUL, "BIOUL"), ("a b c O\n", "all O")]
)
def test_log_says_which_scheme_was_found(written, text, scheme, caplog):
    with caplog.at_level(logging.INFO):
        tags(written(text))
    assert f"the ner column is in {scheme}" in caplog.text or f"no scheme, {scheme}" in caplog.text


def test_same_spans_in_three_schemes_become_the_same_bioul(written):
    expected = [["B-PER", "L-PER", "U-PER", "O"], ["O", "U-LOC"]]
    iob1 = BIO.replace("Anna NNP B-NP B-PER", "Anna NNP I-NP I-PER").replace("B-LOC", "I-LOC")
    for name, text in [("iob1", iob1), ("bio", BIO), ("bioul", BIOUL)]:
        assert tags(written(text, name)) == expected


def test_columns_not_in_use_may_hold_anything(written):
    path = written("Anna -X- -X- I-PER\nLee ( ) I-PER\n")
    assert tags(path) == [["B-PER", "L-PER"]]


@pytest.mark.parametrize(
    "text",
    [
        BIO.replace("\n", "\r\n"),
        BIO.replace("\n", "\r"),
        "\ufeff" + BIO,
        "\n\n \n" + BIO + "\n\t\n\n",
        "-DOCSTART- -X- O O\n" + BIO.replace("\n\n", "\n-DOCSTART- -X- -X- O\n"),
        BIO.replace(" ", "\t"),
        BIO.replace("\n", " \n"),
        BIO.rstrip("\n"),
    ],
    ids=["crlf", "cr", "bom", "blank-ends", "docstart", "tabs", "trailing-blank", "no-last-end"],
)
def test_line_ends_and_dividers_change_nothing(written, text):
    plain = contents(Conll2003DatasetReader().read(written(BIO, "plain.txt")))
    assert contents(Conll2003DatasetReader().read(written(text))) == plain


def test_unusual_tokens_stay_as_they_are(written):
    words = ["a\x00b", "\U0001f600", "x" * 10_000, "no\u00a0break", "line\u2028sep", "\x1c", "-X-"]
    path = written("".join(f"{word} NN O O\n" for word in words))
    (instance,) = Conll2003DatasetReader().read(path)
    assert instance["metadata"]["words"] == words


def test_without_conversion_unknown_tags_pass_with_a_warning(written, caplog):
    path = written("a NN O person\nb NN O O\n")
    assert tags(path, convert_to_coding_scheme=None) == [["person", "O"]]
    assert "data.txt:1: tag 'person' is of no known scheme" in caplog.text


def test_words_alone_make_an_instance_for_prediction():
    reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
    instance = reader.text_to_instance([Token("Anna")])
    assert set(instance.fields) == {"tokens", "metadata"}


def test_sentences_are_read_one_at_a_time(written):
    reader = Conll2003DatasetReader()
    instances = reader._read(written(BIO * 100))
    with mock.patch.object(reader, "text_to_instance") as made:
        next(instances)
    assert made.call_count == 1


# Name of a corpus: its columns, two sentences of it, and the tags of the second one.
CORPORA = {
    "wnut": (["word", "ner"], "#\tO\nRome\tB-location\n\nA\tO\nBo\tB-person\n", "O U-person"),
    "jnlpba": (
        ["word", "ner"],
        "###MEDLINE:95369245\n\nIL-2\tB-DNA\ngene\tI-DNA\n\nCD28\tB-protein\nsurface\tO\n",
        "U-protein O",
    ),
    "conll2002": (
        ["word", "pos", "ner"],
        "-DOCSTART- -DOCSTART- O\n\nDe Art O\n\nHet Art O\nNederlands Adj B-MISC\n",
        "O U-MISC",
    ),
    "germeval": (
        ["number", "word", "ner", "inner"],
        "#\thttp://example.org\t[2009]\n1\tRom\tB-LOC\tO\n\n#\tx\ty\n1\tEr\tO\tO\n2\tBo\tB-PER\tO\n",
        "O U-PER",
    ),
    "german conll2003": (
        ["word", "lemma", "pos", "chunk", "ner"],
        "-DOCSTART- -X- -X- -X- O\n\nRom Rom NE I-NC I-LOC\n\nBo Bo NE I-NC I-PER\n. . $. O O\n",
        "U-PER O",
    ),
}


@pytest.mark.parametrize("name", CORPORA)
def test_other_corpora_are_read_by_their_columns(name, written):
    columns, text, expected = CORPORA[name]
    found = tags(written(text), columns=columns)
    assert len(found) == 2
    assert found[1] == expected.split()


def test_a_token_that_looks_like_a_comment_is_a_token(written):
    reader = Conll2003DatasetReader(columns=["word", "ner"])
    (first, *_) = reader.read(written(CORPORA["wnut"][1]))
    assert first["metadata"].metadata["words"] == ["#", "Rome"]


def test_a_tab_alone_divides_where_a_line_has_one(written):
    path = written("New York\tB-LOC\nis\tO\n")
    (found,) = Conll2003DatasetReader(columns=["word", "ner"]).read(path)
    assert found["metadata"].metadata["words"] == ["New York", "is"]


def test_bioes_becomes_bioul_and_is_named(written, caplog):
    path = written("A O\nNew B-LOC\nYork I-LOC\nCity E-LOC\nBo S-PER\n")
    with caplog.at_level(logging.INFO):
        assert tags(path, columns=["word", "ner"]) == [["O", "B-LOC", "I-LOC", "L-LOC", "U-PER"]]
    assert "the ner column is in BIOES" in caplog.text
