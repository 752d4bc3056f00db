import copy
import json

import pytest
from allennlp.common import Params
from allennlp.data import DatasetReader
from allennlp.data.tokenizers import SpacyTokenizer, WhitespaceTokenizer

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.data.readers.squad import SQUAD2_NO_ANSWER_TOKEN, SquadReader

PASSAGE = "The old mill (built 1854-1855) stands by the river. A farmer built it."
OTHER = "Bells ring."


def answer(text, passage=PASSAGE):
    return {"text": text, "answer_start": passage.index(text)}


ANSWERS = [answer("farmer"), answer("A farmer"), answer("A farmer")]
QUESTIONS = [
    {"id": "q1", "question": " Who built\nit? ", "answers": ANSWERS},
    {"id": "q2", "question": "When?", "answers": [answer("1854")]},
]
BELLS = [{"id": "q3", "question": "What rings?", "answers": [answer("Bells", OTHER)]}]
PARAGRAPHS = [{"context": PASSAGE, "qas": QUESTIONS}, {"context": OTHER, "qas": BELLS}]
DATA = {"version": "1.1", "data": [{"title": "Mills", "paragraphs": PARAGRAPHS}]}


def write(tmp_path, change=None):
    """DATA with one change, made by a function."""
    data = copy.deepcopy(DATA)
    if change:
        change(data)
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return str(path)


def read(path, **arguments):
    return list(SquadReader(SpacyTokenizer(), **arguments).read(path))


def texts(instance, spans):
    tokens = instance["metadata"]["passage_tokens"]
    return [tokens[first : last + 1] for first, last in spans]


def test_questions_are_read_with_their_spans(tmp_path):
    first, second, third = read(write(tmp_path))
    assert [token.text for token in first["question"]] == ["Who", "builtit", "?"]  # as AllenNLP
    assert [token.text for token in first["passage"]][:4] == ["The", "old", "mill", "("]
    metadata = first["metadata"].metadata
    assert metadata["id"] == "q1"
    assert metadata["original_passage"] == PASSAGE
    assert metadata["answer_texts"] == ["farmer", "A farmer", "A farmer"]
    assert texts(first, metadata["token_spans"]) == [["farmer"], ["A", "farmer"], ["A", "farmer"]]
    span = (first["span_start"].sequence_index, first["span_end"].sequence_index)
    assert texts(first, [span]) == [["A", "farmer"]]  # the most frequent
    assert all(
        PASSAGE[start:end] == token
        for (start, end), token in zip(
            metadata["token_offsets"], metadata["passage_tokens"], strict=True
        )
    )
    # A number inside a token takes the whole token.
    assert "1854" in texts(second, second["metadata"]["token_spans"])[0][0]
    assert third["metadata"]["original_passage"] == OTHER


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (0, 3, ["The"]),
        (0, 4, ["The"]),  # white space at the ends belongs to no token
        (3, 8, ["old"]),
        (5, 10, ["old", "mill"]),  # parts of words
        (69, 70, ["."]),
        (0, 70, "all"),
    ],
)
def test_spans_by_hand(start, end, wanted):
    reader = SquadReader(SpacyTokenizer())
    instance = reader.text_to_instance("Who?", PASSAGE, char_spans=[(start, end)])
    (found,) = texts(instance, instance["metadata"]["token_spans"])
    assert found == (instance["metadata"]["passage_tokens"] if wanted == "all" else wanted)


def test_limits_cut_and_answers_that_are_cut_off_become_the_last_token(tmp_path):
    path = write(tmp_path)
    first, second, _ = read(path, passage_length_limit=5, question_length_limit=1)
    assert len(first["passage"]) == 5
    assert len(first["question"]) == 1
    assert first["metadata"]["token_spans"] == [(4, 4)]
    assert first["metadata"]["answer_texts"] == ["farmer", "A farmer", "A farmer"]
    assert second["span_end"].sequence_index == 4
    skipped = read(path, passage_length_limit=5, skip_impossible_questions=True)
    assert [one["metadata"]["id"] for one in skipped] == ["q3"]


def test_squad1_and_squad2_are_constructors(tmp_path):
    def impossible(data):
        question = data["data"][0]["paragraphs"][0]["qas"][1]
        question |= {"is_impossible": True, "answers": []}

    path = write(tmp_path, impossible)
    reader = DatasetReader.from_params(Params({"type": "squad2"}))
    first, second, _ = reader.read(path)
    assert first["passage"].tokens[-1].text == SQUAD2_NO_ANSWER_TOKEN
    assert second["span_start"].sequence_index == len(second["passage"]) - 1
    assert second["metadata"]["answer_texts"] == [SQUAD2_NO_ANSWER_TOKEN]
    start, _ = second["metadata"]["token_offsets"][-1]
    assert start > len(PASSAGE)
    assert texts(first, first["metadata"]["token_spans"])[0] == ["farmer"]
    with pytest.raises(ValueError, match="question 'q2': found is_impossible: true"):
        list(DatasetReader.from_params(Params({"type": "squad1"})).read(path))


def test_a_cut_off_answer_is_none_with_a_no_answer_token(tmp_path):
    path = write(tmp_path)
    limit = 6  # "farmer" begins after the fifth token, within 16 characters of it
    for token in (None, SQUAD2_NO_ANSWER_TOKEN):
        cut = read(path, passage_length_limit=limit, no_answer_token=token)[0]
        skipped = read(
            path, passage_length_limit=limit, no_answer_token=token, skip_impossible_questions=True
        )
        last = len(cut["passage"]) - 1
        assert cut["metadata"]["token_spans"] == [(last, last)]
        assert "q1" not in [one["metadata"]["id"] for one in skipped]
    assert cut["metadata"]["answer_texts"] == [SQUAD2_NO_ANSWER_TOKEN]
    start, end = cut["metadata"]["token_offsets"][-1]
    assert PASSAGE[start:end] == ""


@pytest.mark.parametrize("token", [None, SQUAD2_NO_ANSWER_TOKEN])
def test_an_answer_with_blanks_at_the_passages_end_is_not_cut_off(token):
    for skips in (False, True):
        reader = SquadReader(
            SpacyTokenizer(), skip_impossible_questions=skips, no_answer_token=token
        )
        one = reader.text_to_instance("Who?", "a foo bar ", answer_texts=["foo bar "],
                                      char_spans=[(2, 10)])  # fmt: skip
        assert texts(one, one["metadata"]["token_spans"]) == [["foo", "bar"]]


def test_a_question_without_the_key_answers_is_read_for_prediction(tmp_path):
    path = write(tmp_path, lambda data: data["data"][0]["paragraphs"][1]["qas"][0].pop("answers"))
    assert "span_start" not in read(path)[2].fields


def of_passage(key, value, *inner):
    """A change of the first passage, or of something in it."""

    def change(data):
        part = data["data"][0]["paragraphs"][0]
        for step in inner:
            part = part[step]
        part[key] = value

    return change


def of_q1(key, value):
    return of_passage(key, value, "qas", 0)


def of_answer(key, value):
    return of_passage(key, value, "qas", 0, "answers", 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            of_answer("answer_start", 3),
            "question 'q1': at answer_start 3 the .* ' old m', .* 'farm",
        ),
        (of_answer("answer_start", -6), r"'q1': at answer_start -6 the passage has ''"),
        (of_answer("answer_start", 7000), r"'q1': at answer_start 7000 the passage has ''"),
        (of_answer("answer_start", "54"), r"'q1': expected an integer under 'answer_start'"),
        (of_answer("answer_start", True), r"'q1': expected an integer under 'answer_start'"),
        (of_answer("text", " "), r"'q1': found the answer ' ', expected text"),
        (of_answer("text", None), r"'q1': expected a string under 'text', found None"),
        (of_q1("answers", []), r"'q1': there are no answers, expected at least one"),
        (of_q1("answers", {}), r"'q1': expected a list under 'answers'"),
        (of_q1("answers", ["x"]), r"'q1': found 'x', expected an object with 'text'"),
        (of_q1("question", "  "), r"'q1': found the question '', expected at least one token"),
        (of_q1("question", 5), r"data\[0\].paragraphs\[0\].qas\[0\]: expected a string under"),
        (of_q1("is_impossible", "no"), r"'q1': expected true or false under 'is_impossible'"),
        (of_passage("context", " \n"), r"'q1': the passage is empty"),
        (of_passage("context", f"{PASSAGE} \ud83d"), r"'q1': 'utf-8' codec can't encode"),
        (of_passage("context", None), r"data\[0\].paragraphs\[0\]: expected a string under"),
        (of_passage("qas", None), r"paragraphs\[0\]: expected a list under 'qas'"),
        (lambda data: data.update(data=[]), "no question found"),
        (lambda data: data.update(data="x"), "expected a list under 'data'"),
        (lambda data: data.pop("data"), r"expected a list under 'data'.*keys are \['version'\]"),
        (lambda data: data["data"].append("x"), r"data\[1\]: found 'x', expected an object"),
    ],
)
def test_what_is_wrong_is_named_with_path_and_question(tmp_path, change, message):
    path = write(tmp_path, change)
    with pytest.raises(ValueError, match=rf"squad\.json.*{message}"):
        read(path)


def test_a_passage_of_20000_tokens_is_refused_unless_it_is_cut_or_allowed(tmp_path):
    path = write(tmp_path, of_passage("context", PASSAGE + " far" * 20_000))
    with pytest.raises(ValueError, match=r"question 'q1': the passage has 200\d\d tokens, .*10000"):
        read(path)
    assert len(read(path, passage_length_limit=400)[0]["passage"]) == 400
    assert len(read(path, max_passage_tokens=None)[0]["passage"]) > 20_000


def test_a_tokenizer_without_offsets_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"question 'q1': the token 'The' has no idx"):
        list(SquadReader(WhitespaceTokenizer()).read(write(tmp_path)))


def test_the_old_name_of_an_argument_is_taken():
    with pytest.warns(DeprecationWarning, match="skip_impossible_questions"):
        reader = SquadReader(SpacyTokenizer(), skip_invalid_examples=True)
    assert reader.skip_impossible_questions
