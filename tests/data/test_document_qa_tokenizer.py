import pytest
from allennlp.common import Params
from allennlp.data.tokenizers import Tokenizer

import elmo_plugin.plugin  # noqa: F401


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_params(Params({"type": "document_qa"}))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("from 1854-1855.", "from 1854 - 1855 ."),
        ("a well‑known Anglo-French £5/€6 note", "a well‑known Anglo - French £ 5 / € 6 note"),
        ("the ship's “log” isn't", "the ship ' s “ log ” isn ' t"),
        ("20°C − 5", "20 ° C - 5"),
        ("north—south", "north – south"),
        ("\"It'' is it", '" It " is it'),
        ("snake_case", "snake _ case"),
        ("", ""),
    ],
)
def test_words_are_split_and_spelled_as_in_document_qa(tokenizer, text, wanted):
    found = " ".join(token.text for token in tokenizer.tokenize(text))
    if "isn" in text:  # whether spaCy splits n't first or the quote does, nothing remains joined
        found = found.replace("is n", "isn")
    assert found == wanted


def test_offsets_are_those_of_the_text(tokenizer):
    text = "In  1854−1855, the \"Mill''—it's old—\tstood_here."
    tokens = tokenizer.tokenize(text)
    spelled = [text[token.idx : token.idx_end] for token in tokens]
    assert "".join(spelled) == "".join(text.split())
    changed = {(s, token.text) for s, token in zip(spelled, tokens, strict=True) if s != token.text}
    assert changed == {("−", "-"), ("—", "–"), ("''", '"')}
