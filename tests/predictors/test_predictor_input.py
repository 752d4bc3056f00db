"""Bad input of every predictor: what its one error names."""

import functools

import pytest

from tests.predictors.test_interpreters import predictor

made = functools.cache(functools.partial(predictor, place="words", files=None))
ONE = {"sentences": [["a"]]}
ERRORS = [
    ("ner in BIO", {"text": "a"}, r"found the keys \['text'\].*or a list of strings as `tokens`"),
    ("ner in BIO", {"tokens": "a b"}, "tokens: found 'a b'; expected a list"),
    ("ner in BIO", {"tokens": []}, "0 tokens"),
    ("srl", {"verbs": [0]}, r"found the keys \['verbs'\]; expected a string as `sentence`"),
    ("srl", {"sentence": 3}, "expected a string as `sentence`"),
    ("srl", {"tokens": "a b"}, "a list of strings"),
    ("srl", {"tokens": ["a", 1]}, "a list of strings"),
    ("srl", {"tokens": ["a"], "sentence": "a"}, "expected a string as `sentence` or a list"),
    ("srl", {"tokens": ["a", "b"], "verbs": ["c"]}, r"found 'c', expected a word of \['a', 'b'\]"),
    ("srl", {"tokens": ["a", "b"], "verbs": [2]}, "found 2, .* token index below 2"),
    ("srl", {"tokens": ["a", "b"], "verbs": [-1]}, "found -1"),
    ("srl", {"tokens": ["a", "b"], "verbs": 1}, "verbs: found 1, expected a list"),
    ("srl", {"tokens": ["a", "b"], "verbs": "a"}, "verbs: found 'a', expected a list"),
    ("srl", {"tokens": ["a", ""], "verbs": [0]}, "tokens: found an empty one in"),
    ("snli", {"premise": "A dog", "text": "It"}, r"found the keys \['premise', 'text'\]"),
    *(("snli", {"premise": one, "hypothesis": ""}, "found premise: ") for one in (3, None, ["A"])),
    ("squad", {"question": "Who?"}, "a string as `question` and a string as `passage`"),
    ("coref", {"text": "a"}, r"found the keys \['text'\]; expected a string as `document`"),
    ("coref", {"document": 3}, "expected a string"),
    ("coref", {"document": "a", "sentences": [["a"]]}, "expected a string"),
    ("coref", {"sentences": ["a"]}, "a list of lists of strings"),
    ("coref", {"document": " "}, "an empty document"),
    ("coref", {"sentences": [[]]}, "without words"),
    ("coref", {**ONE, "speakers": []}, "expected 1: a name for each sentence"),
    ("coref", {**ONE, "speakers": [["x", "y"]]}, r"found \[2\] speakers by sentence"),
    ("coref", {**ONE, "speakers": [3]}, "found the speaker 3, expected a name"),
    ("coref", {"document": "a", "speakers": ["x"]}, "speakers of an untokenized document"),
]


@pytest.mark.parametrize(("name", "inputs", "message"), ERRORS)
def test_what_is_wrong_is_named(name, inputs, message):
    with pytest.raises(ValueError, match=message):
        made(name).predict_json(inputs)
