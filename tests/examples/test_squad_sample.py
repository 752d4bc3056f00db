from pathlib import Path

from elmo_plugin.data.readers.squad import read_questions

SAMPLE = Path(__file__).parents[2] / "examples" / "squad"


def test_questions_have_answers_as_in_squad_and_the_splits_share_no_people():
    seen = {}
    for split, (number, answers) in {"train": (240, 1), "dev": (60, 3), "test": (60, 3)}.items():
        questions = list(read_questions(str(SAMPLE / f"{split}.json")))
        assert len(questions) == number
        assert {len(question.answer_texts) for question in questions} == {answers}
        assert len({question.id for question in questions}) == number
        seen[split] = {
            question.answer_texts[0] for question in questions if question.text.startswith("Who")
        }
        assert len(seen[split]) >= 4
    assert not seen["train"] & (seen["dev"] | seen["test"])
