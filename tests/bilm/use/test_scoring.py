"""Scores against the pretraining code's full softmax, and against what scores must be."""

import itertools
import math

import pytest
import torch

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.files.bilm_tf import BilmTfCheckpoint
from elmo_plugin.bilm.files.names import NAMED_BILMS
from elmo_plugin.bilm.pretraining.export import export_bilm
from elmo_plugin.bilm.pretraining.language_model import LanguageModel, sum_of_losses
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary
from elmo_plugin.bilm.use.scoring import LanguageScorer
from tests.tiny_bilm import random_bilm

WORDS = ["the", "cat", "sat", "moon", ".", "naïve", "Dogs"]
SENTENCES = [
    "the cat sat .",
    "Dogs bark at the moon .",
    "naïve",
    "the the the the the the the the cat sat on the moon",
    ". . .",
]


def tokens_of(sentences):
    return [sentence.split() for sentence in sentences]


@pytest.fixture
def vocabulary():
    # The specials may stand anywhere.
    return WordVocabulary([*WORDS[:3], "</S>", "<UNK>", "<S>", *WORDS[3:]])


@pytest.fixture
def parts(vocabulary):
    bilm = random_bilm(cell_clip=3.0, projection_clip=3.0)
    softmax = WordSoftmax(len(vocabulary), bilm.options.projection_dim)
    with torch.no_grad():
        softmax.bias.normal_()
    return bilm, softmax, vocabulary


def scorer_of(parts, state="reset"):
    parts[0].state = state
    return LanguageScorer(*parts)


def pretraining_losses(parts, folder, text):
    """Both directions' loss of every prediction, by the pretraining code, over text as a stream."""
    bilm, softmax, vocabulary = parts
    path = folder / "text"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    model = LanguageModel(bilm, softmax).eval()
    states, losses = None, []
    for batch in StreamLoader([path], batch_size=1, num_steps=1, shuffle=False).pairs(vocabulary):
        with torch.no_grad():
            output = model(batch, states)
        states = output.states
        losses.append((output.forward_loss.item(), output.backward_loss.item()))
    return losses


def as_predicted(scores):
    """The order of predictions: forward to the end, backward from the last token."""
    return list(zip([*scores.forward, scores.end], [*scores.backward[::-1], scores.begin]))


def test_each_token_is_scored_as_in_pretraining(parts, tmp_path, either_backend):
    scorer = scorer_of(parts)
    for sentence, scores in zip(SENTENCES, scorer.score(tokens_of(SENTENCES)), strict=True):
        losses = pretraining_losses(parts, tmp_path, [sentence])
        assert scores.tokens == sentence.split()
        assert len(losses) == scores.num_predictions
        found = torch.tensor(as_predicted(scores))
        torch.testing.assert_close(found, -torch.tensor(losses), atol=1e-5, rtol=0)


def test_carried_over_a_text_as_in_pretraining(parts, tmp_path):
    scorer = scorer_of(parts, "carry")
    found = [pair for one in scorer.score(tokens_of(SENTENCES)) for pair in as_predicted(one)]
    losses = pretraining_losses(parts, tmp_path, SENTENCES)
    torch.testing.assert_close(torch.tensor(found), -torch.tensor(losses), atol=1e-5, rtol=0)
    bilm, softmax, vocabulary = parts
    model = LanguageModel(bilm, softmax)
    text = StreamLoader([tmp_path / "text"], batch_size=1, num_steps=1, shuffle=False)
    forward, backward, count = sum_of_losses(model, text.pairs(vocabulary))
    ours = [math.exp(-sum(one) / len(found)) for one in zip(*found)]
    theirs = (math.exp(forward / count), math.exp(backward / count))
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_by_hand_from_the_biLMs_own_layers(parts):
    """Primed; the layers that everybody else gets, a softmax written out."""
    bilm, softmax, vocabulary = parts
    scorer = scorer_of(parts, "primed")
    tokens = ["the", "dog", "sat"]
    (scores,) = scorer.score([tokens])
    with torch.no_grad():
        top = bilm(bilm.batch_to_ids([tokens]))["activations"][-1][0].double()
        weight, bias = softmax.weight.double(), softmax.bias[:, 0].double()
    ids = [vocabulary.id(word) for word in ("<S>", "the", "<UNK>", "sat", "</S>")]
    for place in range(1, 5):
        ahead = (weight @ top[place - 1, :6] + bias).log_softmax(0)[ids[place]].item()
        assert [*scores.forward, scores.end][place - 1] == pytest.approx(ahead, abs=1e-5)
    for place in range(4):
        back = (weight @ top[place + 1, 6:] + bias).log_softmax(0)[ids[place]].item()
        assert [scores.begin, *scores.backward][place] == pytest.approx(back, abs=1e-5)
    assert scores.unknown == [False, True, False]
    total = -(sum(scores.forward) + sum(scores.backward) + scores.end + scores.begin) / 2
    assert scores.perplexity == pytest.approx(math.exp(total / 4))


@pytest.mark.parametrize("state", ["primed", "reset"])
def test_order_and_batching_do_not_matter(parts, state):
    scorer = scorer_of(parts, state)
    sentences = tokens_of(SENTENCES)
    together = list(scorer.score(sentences))
    again = list(scorer.score(reversed(sentences), max_tokens=8))[::-1]
    assert [one.tokens for one in together] == [one.tokens for one in again] == sentences
    for one, other in zip(together, again):
        assert one.forward == pytest.approx(other.forward, abs=1e-6)
        assert one.backward == pytest.approx(other.backward, abs=1e-6)


def test_substitutes_are_the_best_of_all_words(parts):
    """Every word put in the place and scored: the two directions see the same contexts."""
    scorer = scorer_of(parts, "primed")
    _, _, vocabulary = parts
    sentence, place = ["Dogs", "sat", "the", "moon"], 1
    found = scorer.substitutes(sentence, place, k=100)
    candidates = [word for word in vocabulary.words if word not in (*SPECIAL_WORDS, "sat")]
    assert sorted(one.word for one in found) == sorted(candidates)
    texts = [[*sentence[:place], one.word, *sentence[place + 1 :]] for one in found]
    for one, scores in zip(found, scorer.score(texts)):
        assert one.forward == pytest.approx(scores.forward[place], abs=1e-5)
        assert one.backward == pytest.approx(scores.backward[place], abs=1e-5)
    products = [one.forward + one.backward for one in found]
    assert products == sorted(products, reverse=True)
    constants = [one.log_probability - one.forward - one.backward for one in found]
    assert max(constants) - min(constants) < 1e-5
    assert scorer.substitutes(sentence, place, k=2) == found[:2]
    by_token = scorer.all_substitutes(sentence, k=3)
    assert [one.word for one in by_token[place]] == [one.word for one in found[:3]]
    # The token itself is not read.
    other = scorer.substitutes(["Dogs", "bark", "the", "moon"], place, k=100)
    unread = {one.word: pytest.approx(one.forward, abs=1e-6) for one in other}
    assert all(one.forward == unread[one.word] for one in found)


def test_what_cannot_be_scored_is_an_error(parts):
    scorer = scorer_of(parts)
    with pytest.raises(ValueError, match=r"the batch is the string 'the cat', expected a list"):
        list(scorer.score("the cat"))
    with pytest.raises(ValueError, match="sentence 0 is the string 'the cat'"):
        list(scorer.score(["the cat"]))
    with pytest.raises(ValueError, match="position is 2, expected 0 to 1"):
        scorer.substitutes(["the", "cat"], 2)
    with pytest.raises(ValueError, match="k is 0, expected 1 or more"):
        scorer.substitutes(["the", "cat"], 0, k=0)
    bilm, _, vocabulary = parts
    with pytest.raises(ValueError, match=r"softmax has shape \(4, 6\), expected \(10, 6\)"):
        LanguageScorer(bilm, WordSoftmax(4, 6), vocabulary)


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def folder(parts, tmp_path):
    bilm, softmax, vocabulary = parts
    export_bilm(bilm, tmp_path / "run", vocabulary=vocabulary, softmax=softmax)
    return tmp_path / "run"


def table(capsys):
    printed = capsys.readouterr()
    return [line.split("\t") for line in printed.out.splitlines()], printed.err.splitlines()


def test_the_command_sums_and_tells(folder, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("the cat sat .\n\nDogs bark\n", encoding="utf-8")
    main(["score", str(folder), str(text)])
    sentences, summary = table(capsys)
    assert sentences[0] == ["line", "tokens", "unknown", "forward", "backward", "perplexity"]
    assert [row[:3] for row in sentences[1:]] == [["1", "4", "0"], ["3", "2", "1"]]
    expected = "2 sentences, 6 tokens, 1 of them outside the vocabulary and scored as <UNK>: "
    assert summary[-1].startswith(expected)
    main(["score", str(text), "--summary", "--options-file", str(folder)])
    assert capsys.readouterr().out.splitlines() == [summary[-1]]
    main(["score", str(folder), str(text), "--tokens", "--substitutes", "3"])
    tokens, again = table(capsys)
    assert summary == again
    assert tokens[0][-1] == "substitutes"
    assert [row[2] for row in tokens[1:7]] == ["<S>", "the", "cat", "sat", ".", "</S>"]
    assert [row[1] for row in tokens[1:7]] == ["-1", "0", "1", "2", "3", "4"]
    assert all(len(row[6].split()) == 3 for row in tokens[2:6])
    for column in (4, 5):
        total = sum(float(row[column] or 0) for row in tokens[1:7])
        assert total == pytest.approx(float(sentences[1][column - 1]), abs=1e-3)


def test_a_scorer_is_made_of_a_folder_or_of_the_embedded_bilm(folder, monkeypatch):
    """The embedded biLM can score once its softmax lies beside it."""
    sentences = tokens_of(SENTENCES)
    expected = list(LanguageScorer.from_directory(folder).score(sentences))
    assert list(LanguageScorer(folder).score(sentences)) == expected
    files = (str(folder / "options.json"), str(folder / "weights.hdf5"))
    monkeypatch.setitem(NAMED_BILMS, "embedded", files)
    assert list(LanguageScorer("embedded").score(sentences)) == expected
    (folder / "softmax.hdf5").unlink()
    with pytest.raises(FileNotFoundError, match=r"embedded has no softmax\.hdf5, expected"):
        LanguageScorer("embedded")


def test_a_bilm_alone_makes_no_scorer(parts, folder):
    with pytest.raises(ValueError, match="expected its softmax and vocabulary too"):
        LanguageScorer(parts[0])
    with pytest.raises(ValueError, match="expected the folder alone"):
        LanguageScorer(folder, *parts[1:])


def test_a_softmax_of_a_checkpoint(tmp_path, capsys, error_line, tensorflow):
    """From bilm-tf's checkpoint; its vocabulary given, since it was not converted along."""
    from tests.bilm.files.test_bilm_tf import FIXTURE

    BilmTfCheckpoint(FIXTURE).write(tmp_path / "converted")
    text = tmp_path / "text"
    text.write_text("the cat sat on the mat .\n")
    arguments = ["score", str(tmp_path / "converted"), str(text)]
    assert "converted has no vocabulary.txt, expected the folder of" in error_line(*arguments)
    main([*arguments, "--vocabulary", str(FIXTURE / "vocabulary.txt"), "--state", "reset"])
    assert table(capsys)[0][1][:3] == ["1", "7", "0"]


@pytest.mark.parametrize(
    ("break_", "message"),
    [
        (lambda folder: (folder / "softmax.hdf5").unlink(), "run has no softmax.hdf5, expected"),
        (lambda folder: (folder / "softmax.hdf5").write_text("x"), "is not a whole HDF5 file"),
        (
            lambda folder: (folder / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\n"),
            "have shapes (10, 6) and (10,), expected (3, 6) and (3,)",
        ),
    ],
)
def test_wrong_files_are_one_line(folder, tmp_path, error_line, break_, message):
    break_(folder)
    (tmp_path / "text").write_text("a\n")
    assert message in error_line("score", folder, tmp_path / "text")


def test_wrong_arguments_are_one_line(folder, tmp_path, error_line):
    text = str(tmp_path / "text")
    for arguments, message in (
        ([str(tmp_path / "none"), text], "there is no text"),
        ([str(folder), str(folder / "vocabulary.txt"), "--substitutes", "0"], "expected 1 or more"),
        ([str(folder), "-", "--substitutes", "2", "--state", "carry"], "expected another state"),
        ([str(folder), "-", "--cuda-device", "99"], "--cuda-device is 99, expected less"),
        ([str(folder), str(tmp_path)], f"there is no text {tmp_path}, expected a file or -"),
    ):
        assert message in error_line("score", *arguments)
    (tmp_path / "text").write_bytes(b"a\n\xff\n")
    assert "text:2: not UTF-8" in error_line("score", folder, text)


def test_sentences_are_read_as_they_are_needed(parts):
    scorer = scorer_of(parts)
    endless = itertools.cycle(tokens_of(SENTENCES))
    taken = list(itertools.islice(scorer.score(endless, max_tokens=16), 7))
    assert [one.tokens for one in taken[:5]] == tokens_of(SENTENCES)
