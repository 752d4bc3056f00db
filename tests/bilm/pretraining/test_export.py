"""An exported biLM with its softmax and vocabulary."""

import pytest

from elmo_plugin.bilm.pretraining import export
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary
from tests.tiny_bilm import random_bilm


def test_what_cannot_be_written_whole_replaces_nothing(tmp_path, monkeypatch):
    def write(*words):
        vocabulary = WordVocabulary([*SPECIAL_WORDS, *words])
        bilm = random_bilm()
        softmax = WordSoftmax(len(vocabulary), bilm.options.projection_dim)
        export.export_bilm(bilm, tmp_path, vocabulary=vocabulary, softmax=softmax)
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    before = write("a")
    assert sorted(before) == ["options.json", "softmax.hdf5", "vocabulary.txt", "weights.hdf5"]
    monkeypatch.setattr(export, "save_weights", full)
    with pytest.raises(OSError, match=r"could not be written \(No space left on device\).*weights"):
        write("b")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_card_has_no_folders_of_this_machine():
    card = {
        "command": "pretrain /home/me/a/c.json -s ~/out -o {'x':'/data/t*.txt'} C:\\x\\y",
        "text": ["/data/t.txt", "runs/one", "1/2 and a / b", "https://host/x/y"],
        "steps": 4,
    }
    assert export.without_folders(card) == {
        "command": "pretrain c.json -s out -o {'x':'t*.txt'} y",
        "text": ["t.txt", "runs/one", "1/2 and a / b", "https://host/x/y"],
        "steps": 4,
    }
