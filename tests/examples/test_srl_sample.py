from pathlib import Path

from elmo_plugin.data.readers.srl import SrlReader

EXAMPLES = Path(__file__).parents[2] / "examples/srl"


def test_no_sentence_is_there_twice():
    splits = [
        {
            " ".join(instance["metadata"]["words"])
            for instance in SrlReader().read(str(EXAMPLES / split))
        }
        for split in ("train", "dev", "test")
    ]
    assert [len(split) for split in splits] == [220, 60, 60]
    assert len(set.union(*splits)) == 340
