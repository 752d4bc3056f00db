import runpy
from collections import Counter
from pathlib import Path

import pytest
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("task", ["coref", "ner", "snli", "squad", "srl", "sst", "text"])
def test_the_generator_writes_the_committed_files(task):
    files = runpy.run_path(str(EXAMPLES / task / "make.py"))["make"]()
    assert len(files) == (2 if task == "text" else 3)
    for name, text in files.items():
        assert (EXAMPLES / task / name).read_text(encoding="utf-8") == text
    lines = [line for text in files.values() for line in text.splitlines()]
    assert task not in ("snli", "sst") or len(set(lines)) == len(lines) > 600


def test_snli_samples_hold_the_three_labels_about_evenly():
    reader = SnliReader(tokenizer=WhitespaceTokenizer())
    labels = Counter(i["label"].label for i in reader.read(str(EXAMPLES / "snli/train.jsonl")))
    assert sorted(labels) == ["contradiction", "entailment", "neutral"]
    assert min(labels.values()) > 100


def test_sst_samples_hold_the_five_classes_on_sentences_and_on_phrases():
    path = str(EXAMPLES / "sst/train.txt")
    for use_subtrees in (False, True):
        reader = StanfordSentimentTreeBankDatasetReader(use_subtrees=use_subtrees)
        labels = Counter(instance["label"].label for instance in reader.read(path))
        assert sorted(labels) == list("01234")
        assert min(labels.values()) > 40
