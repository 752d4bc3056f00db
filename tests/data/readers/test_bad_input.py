"""Bad input of every reader: what its one error names, with the file and mostly the line."""

import json

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data import Token
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader as Conll2003
from elmo_plugin.data.readers.coref import ConllCorefReader as Coref
from elmo_plugin.data.readers.snli import SnliReader as Snli
from elmo_plugin.data.readers.squad import SQUAD2_NO_ANSWER_TOKEN, SquadReader
from elmo_plugin.data.readers.srl import SrlReader as Srl
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader as Sst
from tests.data.readers import test_coref_reader, test_srl_reader

PAIR = {"gold_label": "neutral", "sentence1": "A", "sentence2": "B"}


def bioul(**arguments):
    return Conll2003(convert_to_coding_scheme="BIOUL", **arguments)


def scitail(**arguments):
    return Snli(tokenizer=WhitespaceTokenizer(), labels=["entails"], **arguments)


def snli():
    return Snli(tokenizer=WhitespaceTokenizer())


def srl(*sentence):
    return lambda path: test_srl_reader.write(path, [*sentence])


def coref(text):
    return lambda path: test_coref_reader.write(path, text)


def talk(change):
    def write(path):
        test_coref_reader.write(path, test_coref_reader.TALK)
        path.write_text("\n".join(change(path.read_text().split("\n"))))

    return write


# Reader, content of its file (or how it is written), and what the error names beside the file.
FILES = [
    (bioul, "", ":1: ", "no sentence"),
    (bioul, "\n\n-DOCSTART- -X- -X- O\n\n", "no sentence"),
    (bioul, "a NN O O\nb O\n", ":2: ", "'b O'", "word pos chunk ner"),
    (bioul, "a NN O O O\n", ":1: 5 columns"),
    (bioul, "a NN O O\n\nb NN O Q-PER\n", ":3: ", "'Q-PER'"),
    (bioul, "a NN O I-\n", ":1: ", "'I-'"),
    (bioul, "a NN O OO\n", ":1: ", "'OO'"),
    (bioul, "a NN O B-PER\n\nb NN O I-PER\n", ":3: ", "'I-PER'", "line 1"),
    (bioul, "a NN O I-PER\nc NN O O\nb NN O B-PER\n", ":3: ", "'B-PER'", "line 1"),
    (bioul, "a NN O U-PER\nc NN O I-PER\nb NN O O\n", ":2: ", "'I-PER'", "BIOUL"),
    (bioul, "a NN O B-PER\nb NN O L-LOC\n", ":2: ", "'L-LOC'", "BIOUL"),
    (bioul, "a NN O B-PER\nc NN O O\n\nb NN O U-PER\n", ":2: ", "'O'", "BIOUL"),
    (bioul, "b NN O U-PER\n\na NN O B-PER\n", ":3: ", "'B-PER'", "BIOUL"),
    (bioul, b"a NN O O\n\n\xff\xfe NN O O\n", ":3: not UTF-8"),
    (bioul, b"\xed\xa0\x80 NN O O\n", ":1: not UTF-8"),
    (lambda: bioul(tag_label="chunk"), "Anna -X- -X- I-PER\n", ":1: ", "'-X-'", "chunk"),
    (lambda: Conll2003(columns=["word", "pos", "ner"]), "Rome\t\tO\n", ":1: ", "word pos ner"),
    (Conll2003, "Rome B-LOC\n", "2 columns", "argument `columns`"),
    (lambda: bioul(columns=["word", "ner"]), "New B-LOC\nBo S-PER\n", "BIOES", "B-X E-X"),
    (lambda: Coref(2), coref("a - -\nb - 4)\n"), "line 3:", "cluster '4'"),
    (lambda: Coref(2), coref("a - (4\nb - 4)|4)\n"), "line 3:", "cluster '4'"),
    (lambda: Coref(2), coref("a - -\nb - (4\nc - -\n"), "line 3:", "'4' opens here"),
    (lambda: Coref(2), coref("a - (4\n\nb - 4)\n"), "line 2:", "'4' opens here"),
    (lambda: Coref(2), coref("a - (x)\n"), "line 2:", "'(x)'"),
    (lambda: Coref(2), coref("a - 3\n"), "line 2:", "'3'"),
    (lambda: Coref(2), coref("a - (3)|\n"), "line 2:", "'(3)|'"),
    (lambda: Coref(2), talk(lambda x: [*x[:2], "d 0 0 met XX *", *x[3:]]), "line 3: found 6 col"),
    (lambda: Coref(2), talk(lambda x: [*x[:2], x[2] + " -", *x[3:]]), "line 3: found 13", "12"),
    (lambda: Coref(2), talk(lambda x: [*x[:-2], x[0], *x[-2:]]), "line 11:", "in line 1"),
    (lambda: Coref(2), "\n# nothing\n", "no token"),
    (lambda: Coref(2), b"d 0 0 \xe9t\xe9 XX * - - - - * -\n", ":1: not UTF-8"),
    (Srl, srl("a (ARG0*", "b (V*)"), "line 3, column 12:", "'ARG0'"),
    (Srl, srl("a (V*)", "b *)"), "line 3, column 12:", "'*)'"),
    (Srl, srl("a (V*)", "b * *"), "line 3: found 14 columns", "13"),
    (Srl, srl("a ARG0", "b (V*)"), "line 2, column 12:", "'ARG0'", "(ROLE*"),
    (Srl, srl("a (*)", "b (V*)"), "line 2, column 12:", "'(*)'", "(ROLE*"),
    (Srl, "d 0 0 word XX\n", "line 1: found 5 columns", "12"),
    (snli, "{'gold_label': 'neutral'}", "line 1:", "not json"),
    (snli, json.dumps(PAIR) + '\n\n{"gold_label": "neutral"', "line 3:", "not json"),
    (snli, '["neutral", "A", "B"]', "json object"),
    (snli, '{"gold_label": "neutral", "sentence1": "A"}', "string under 'sentence2'"),
    (snli, json.dumps({**PAIR, "sentence1": 1}), "string under 'sentence1', found 1"),
    (snli, json.dumps({**PAIR, "gold_label": "maybe"}), "gold_label is 'maybe'"),
    (scitail, json.dumps({**PAIR, "gold_label": True}), "gold_label is True"),
    (scitail, json.dumps(PAIR), "'neutral'", "argument `labels`"),
    *((snli, text, "no sentence pair") for text in ("", "\n", '{"gold_label": "-", '
      '"sentence1": "A", "sentence2": "B"}')),
    (Sst, "(3 (2 It) (4 works)", "line 1:", "1 brackets"),
    (Sst, "(1 a)\n\n(3 (2 It) (4 works)))", "line 3: column 21:", "')'"),
    (Sst, "(3 (2 It) (4 works)) (2 .)", "column 22:", "'('"),
    (Sst, "It works", "column 1:", "'It'"),
    (Sst, "(3 (2 It) ( works))", "column 18:", "'works'"),
    (Sst, "(3 (2 It) ((4 works)))", "column 12:", "'('"),
    (Sst, "(3 (2 It) ())", "column 12:", "')'"),
    (Sst, "(3 (2 It) (4))", "column 13:", "'4'"),
    (lambda: Sst(granularity="3-class"), "(7 (2 It) (2 works))\n", "line 1:", "label '7'"),
    (Sst, "\n", "no tree"),
    *((SquadReader, text, "") for text in (b"", b"{", b"[]", b'"x"', b"\xff{}")),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "content", "named"), [(r, c, n) for r, c, *n in FILES])
def test_a_bad_file_is_named_with_what_is_wrong(reader, content, named, tmp_path):
    path = tmp_path / "data.gold_conll"
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"data\.gold_conll") as error:
        list(reader().read(str(path)))
    assert [one for one in named if one not in str(error.value)] == []


@pytest.mark.parametrize("reader", [lambda: Coref(2), Srl])
def test_a_folder_without_files_is_named(reader, tmp_path):
    with pytest.raises(ValueError, match=r"\*gold_conll") as error:
        list(reader().read(str(tmp_path)))
    assert str(tmp_path) in str(error.value)
    with pytest.raises(FileNotFoundError):
        list(reader().read(str(tmp_path / "missing")))


@pytest.mark.parametrize(
    ("work", "named"),
    [
        (lambda: Conll2003(tag_label="words"), "tag label type: words"),
        (lambda: Conll2003(feature_labels=["words"]), "feature label type: words"),
        (lambda: Conll2003(convert_to_coding_scheme="BIO"), "convert_to_coding_scheme: BIO"),
        (lambda: Conll2003(coding_scheme="BIO"), "coding_scheme: BIO"),
        (lambda: Conll2003(columns=["ner"]), "word once"),
        (lambda: Conll2003(columns=["word", "ner", "ner"]), "at most once"),
        (lambda: Conll2003(columns=["word"]), "'ner'"),
        (lambda: Conll2003().text_to_instance([]), "0 tokens"),
        (
            lambda: Conll2003(feature_labels=["pos"]).text_to_instance([Token("Anna")]),
            "feature_labels names pos",
        ),
        (lambda: Coref(0), "max_span_width 0"),
        (lambda: Coref(2, max_sentences=0), "max_sentences 0"),
        (lambda: Coref(2, max_sentences=-1), "max_sentences -1"),
        (lambda: Coref(2).text_to_instance([[]]), "without words"),
        (lambda: Coref(2).text_to_instance([["a", "b"]], speakers=[["x"]]), "found [1] speakers"),
        (lambda: scitail(collapse_labels=True), "collapse_labels and the labels ['entails']"),
        (lambda: SquadReader(question_length_limit=0), "question_length_limit is 0"),
        (lambda: SquadReader(max_passage_tokens=-1), "max_passage_tokens is -1"),
        (lambda: SquadReader(passage_length_limit=0), "length_limit is 0"),
        (
            lambda: SquadReader(passage_length_limit=1, no_answer_token=SQUAD2_NO_ANSWER_TOKEN),
            "length_limit is 1",
        ),
        (lambda: Sst(granularity="4-class"), "'4-class'"),
        (lambda: Sst(use_subtrees=True, min_phrase_length=0), "is 0"),
        (lambda: Sst(min_phrase_length=4), "min_phrase_length is 4 without use_subtrees"),
        (lambda: Sst().text_to_instance("a b"), "'a b', expected tokens"),
        (lambda: Sst().text_to_instance([]), "empty"),
        (lambda: Sst(tokenizer=WhitespaceTokenizer()).text_to_instance(" "), "empty"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*coding_scheme.*:DeprecationWarning")
def test_a_bad_argument_is_named_with_its_value(work, named):
    with pytest.raises((ConfigurationError, ValueError)) as error:
        work()
    assert named in str(error.value)
