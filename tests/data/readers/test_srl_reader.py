import re
from pathlib import Path

import numpy
import pytest
from allennlp.data import Token, Vocabulary
from allennlp.data.token_indexers import SingleIdTokenIndexer
from transformers import BertTokenizerFast

from elmo_plugin import compat
from elmo_plugin.data.readers.srl import SrlReader
from tests.data.readers.test_coref_reader import write as write_conll2012

EXAMPLES = Path(__file__).parents[3] / "examples/srl"


def write(path, *sentences):
    """A file of sentences, each a list of `word cell cell ...`."""
    rows = "\n\n".join("\n".join(f"{row} -" for row in rows) for rows in sentences)
    return write_conll2012(path, re.sub(r"^(\S+)", r"\1 -", rows, flags=re.M))


SAID = ["He (ARG0*) *", "said (V*) *", "it (ARG1* (ARG0*)", "rained *) (V*)", ". * *"]
QUIET = ["Quiet", "!"]


def test_instances_by_hand(tmp_path):
    write(tmp_path / "a.gold_conll", SAID, QUIET)
    said, rained, quiet = SrlReader().read(str(tmp_path))
    assert [token.text for token in said["tokens"]] == ["He", "said", "it", "rained", "."]
    assert said["tags"].labels == ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "O"]
    assert said["verb_indicator"].labels == [0, 1, 0, 0, 0]
    assert said["metadata"].metadata == {
        "words": ["He", "said", "it", "rained", "."],
        "verb": "said",
        "verb_index": 1,
        "gold_tags": ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "O"],
    }
    arrays = (numpy.array(said[name].labels) for name in ("verb_indicator", "tags"))
    assert SrlReader().text_to_instance(said["tokens"].tokens, *arrays) == said
    assert rained["tags"].labels == ["O", "O", "B-ARG0", "B-V", "O"]
    assert rained["metadata"]["verb_index"] == 3
    # A sentence without predicates is one instance.
    assert quiet["tags"].labels == ["O", "O"]
    assert quiet["verb_indicator"].labels == [0, 0]
    assert quiet["metadata"]["verb"] is None
    assert quiet["metadata"]["verb_index"] is None


@pytest.mark.parametrize(
    ("rows", "tags", "indicator", "warning"),
    [
        (["Rain *", "falls (V*)"], "O B-V", [0, 1], ""),
        (["Look (V*)", "it (A1*)", "up (C-V*)"], "B-V B-A1 B-C-V", [1, 0, 1], ""),
        (["a (A2(A1*)", "b *)", "c (V*)"], "B-A2 I-A2 B-V", [0, 0, 1], "line 2, column 12"),
        (
            ["a (A0*) (A1*)", "b * (V*)"],
            "B-A1 B-V",
            [0, 1],
            "column 12 has arguments and no (V*",
        ),
    ],
    ids=["no argument", "continuation", "nested spans", "arguments of no predicate"],
)
def test_a_sentence_by_hand(rows, tags, indicator, warning, tmp_path, caplog):
    write(tmp_path / "a.gold_conll", rows)
    (instance,) = SrlReader().read(str(tmp_path))
    assert instance["tags"].labels == tags.split()
    assert instance["verb_indicator"].labels == indicator
    assert instance["metadata"]["verb"] == rows[indicator.index(1)].split()[0]
    assert warning in caplog.text
    assert bool(warning) == bool(caplog.text)


def test_files_at_any_depth_in_the_order_of_their_paths(tmp_path):
    write(tmp_path / "b/nw/x.gold_conll", ["two (V*)"])
    write(tmp_path / "a/bc/x.gold_conll", ["one (V*)"])
    write(tmp_path / "c.v4_gold_conll", ["three (V*)"])
    write(tmp_path / "d.gold_skel", ["no (V*)"])

    def words(**arguments):
        reader = SrlReader(**arguments)
        return [i["metadata"]["verb"] for i in reader.read(str(tmp_path))]

    assert words() == ["one", "two", "three"]
    assert words(domain_identifier="nw") == ["two"]
    with pytest.raises(ValueError, match=r"none of 3 .* is in a directory 'tc'"):
        words(domain_identifier="tc")


def test_an_empty_file_has_no_instances(tmp_path):
    (tmp_path / "a.gold_conll").write_text("")
    assert list(SrlReader().read(str(tmp_path))) == []


def test_sample_data_has_every_kind_of_argument():
    instances = list(SrlReader().read(str(EXAMPLES / "train")))
    tags = {tag for instance in instances for tag in instance["tags"].labels}
    assert {"B-V", "B-ARG0", "B-ARG1", "B-ARG2", "B-C-ARG1", "B-R-ARG0", "B-ARGM-NEG"} <= tags
    assert len(instances) > 220
    assert any(instance["metadata"]["verb"] is None for instance in instances)


@pytest.fixture
def bert(tmp_path):
    """A BERT of a few word pieces, without weights."""
    compat.repair()
    folder = tmp_path / "bert-tiny-uncased"
    folder.mkdir()
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] anno ##tate ##d she it a b"
    (folder / "vocab.txt").write_text(pieces.replace(" ", "\n") + "\n")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "bert", "vocab_size": 12}')
    return str(folder)


def test_word_pieces_by_hand(bert):
    reader = SrlReader(bert_model_name=bert)
    words = [Token(word) for word in ("She", "Annotated", "it")]
    instance = reader.text_to_instance(words, [0, 1, 0], ["B-ARG0", "B-V", "I-V"])
    pieces = ["[CLS]", "she", "anno", "##tate", "##d", "it", "[SEP]"]
    assert [token.text for token in instance["tokens"]] == pieces
    assert [token.text_id for token in instance["tokens"]] == [2, 8, 5, 6, 7, 9, 3]
    assert instance["verb_indicator"].labels == [0, 0, 1, 1, 1, 0, 0]
    assert instance["tags"].labels == ["O", "B-ARG0", "B-V", "I-V", "I-V", "I-V", "O"]
    metadata = instance["metadata"].metadata
    assert metadata["offsets"] == [1, 2, 5]
    assert metadata["words"] == ["She", "Annotated", "it"]
    assert metadata["gold_tags"] == ["B-ARG0", "B-V", "I-V"]
    assert (metadata["verb"], metadata["verb_index"]) == ("Annotated", 1)


def test_word_pieces_take_a_given_indexer(bert):
    reader = SrlReader({"words": SingleIdTokenIndexer()}, bert_model_name=bert)
    instance = reader.text_to_instance([Token("it")], [0])
    assert set(instance["tokens"].token_indexers) == {"words"}
    assert "tags" not in instance.fields
    assert "gold_tags" not in instance["metadata"].metadata
    instance.index_fields(Vocabulary())
