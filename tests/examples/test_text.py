from pathlib import Path

TEXT = Path(__file__).parents[2] / "examples" / "text"


def test_heldout_sentences_are_mostly_new_and_of_known_words():
    train, heldout = (
        (TEXT / name).read_text().splitlines() for name in ("train.txt", "heldout.txt")
    )
    assert len(train) > 500
    assert len(set(heldout) - set(train)) > len(heldout) / 2
    known = {word for line in train for word in line.split()}
    assert sum(word in known for line in heldout for word in line.split()) > 0.99 * sum(
        len(line.split()) for line in heldout
    )
