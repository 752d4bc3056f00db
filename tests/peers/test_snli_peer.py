"""`snli` reads what allennlp-models' reader reads."""

from pathlib import Path

import pytest
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.snli import SnliReader

stock = pytest.importorskip(
    "allennlp_models.pair_classification",
    reason="allennlp-models is not installed; `make peers` installs it apart",
)
pytestmark = pytest.mark.peers

PAIRS = Path(__file__).parents[2] / "examples/snli/dev.jsonl"


@pytest.mark.parametrize("collapse_labels", [False, True])
@pytest.mark.parametrize("tokenizer", [None, WhitespaceTokenizer()])
def test_instances_are_the_same(collapse_labels, tokenizer):
    arguments = {"collapse_labels": collapse_labels, "tokenizer": tokenizer}
    expected = list(stock.SnliReader(**arguments).read(str(PAIRS)))
    found = list(SnliReader(**arguments).read(str(PAIRS)))
    assert len(found) == len(expected) > 100
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.fields.keys() == theirs.fields.keys()
        assert ours["label"].label == theirs["label"].label
        assert ours["metadata"].metadata == theirs["metadata"].metadata
        for name in ("premise", "hypothesis"):
            assert ours[name].tokens == theirs[name].tokens
