from collections import Counter
from pathlib import Path

from allennlp.data.dataset_readers.dataset_utils import bioul_tags_to_spans

from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader

NER = Path(__file__).parents[2] / "examples" / "ner"


def read(split):
    reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
    return list(reader.read(NER / f"{split}.txt"))


def entities(split):
    for instance in read(split):
        words = instance["metadata"]["words"]
        for kind, (start, end) in bioul_tags_to_spans(instance["tags"].labels):
            yield kind, " ".join(words[start : end + 1])


def test_sizes_and_types():
    for split, size in (("train", 450), ("dev", 100), ("test", 150)):
        assert len(read(split)) == size
        types = Counter(kind for kind, _ in entities(split))
        assert sorted(types) == ["LOC", "MISC", "ORG", "PER"]
        assert min(types.values()) >= 10


def test_no_name_stands_in_two_files():
    names = {
        split: {name.title() for _, name in entities(split)} for split in ("train", "dev", "test")
    }
    assert not names["train"] & names["test"]
    assert not names["dev"] & names["test"]
    assert not names["train"] & names["dev"]
