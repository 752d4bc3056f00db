import json
import re
from html.parser import HTMLParser

import pytest

from elmo_plugin.__main__ import main
from elmo_plugin.pages.predictions import Span, spans_of

EVIL = "<script>alert('x')</script>&\"{0}"
NER = {"words": ["Anna", "Holm", "met", EVIL], "tags": ["B-PER", "L-PER", "O", f"U-{EVIL}"]}
SRL = {
    "words": ["Dogs", "bark", EVIL],
    "verbs": [{"verb": "bark<b>", "description": "", "tags": ["B-ARG0", "B-V", "O"]}],
}
COREF = {
    "document": ["The", "dog", "of", "Anna", "ate", "her", EVIL],
    "top_spans": [[0, 1]],
    "clusters": [[[3, 3], [5, 5]], [[0, 3], [6, 6]]],
}
ANSWER = {
    "question": f"Who {EVIL}?",
    "passage": f"Anna  {EVIL} built\nit.",
    "best_span_str": "Anna",
    "best_span": [0, 0],
    "token_offsets": [[0, 4], [6, 43], [44, 49], [50, 53]],
    "passage_tokens": ["Anna", EVIL, "built", "it."],
    "question_tokens": ["Who", EVIL, "?"],
}


class Elements(HTMLParser):
    """The page's elements, its text, and the text inside each `mark`."""

    def __init__(self, page):
        super().__init__()
        self.names, self.attributes, self.text, self.marks, self.in_mark = [], [], "", [], False
        self.feed(page)

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.attributes += attributes
        if name == "mark":
            self.marks.append("")
            self.in_mark = True

    def handle_endtag(self, name):
        self.in_mark = self.in_mark and name != "mark"

    def handle_data(self, data):
        self.text += data
        if self.in_mark:
            self.marks[-1] += data


def show(tmp_path, *predictions, inputs=None):
    (tmp_path / "out.jsonl").write_text("\n\n".join(map(json.dumps, predictions)) + "\n")
    more = [] if inputs is None else ["--inputs", str(inputs)]
    main(["show", str(tmp_path / "out.jsonl"), str(tmp_path / "page.html"), "--force", *more])
    return Elements((tmp_path / "page.html").read_text(encoding="utf-8"))


def marks(page):
    return [" ".join(mark.split()) for mark in page.marks]


def test_entities_are_marked_with_their_type(tmp_path, capsys):
    page = show(tmp_path, NER)
    assert page.marks == ["Anna Holm PER", f"{EVIL} {EVIL}"]
    assert capsys.readouterr().out.startswith("1 prediction in ")


def test_roles_are_marked_for_each_predicate(tmp_path):
    assert marks(show(tmp_path, SRL)) == ["Dogs ARG0", "bark V"]
    assert marks(show(tmp_path, {"words": ["No", "verb"], "verbs": []})) == []


def test_the_answer_is_marked_in_its_passage(tmp_path):
    page = show(tmp_path, ANSWER)
    assert marks(page) == ["Anna answer"]
    assert ANSWER["question"] in page.text
    far = {**ANSWER, "token_offsets": [[0, 4], [10**10, 10**10 + 1]], "best_span": [1, 1]}
    assert "(no answer)" in show(tmp_path, far).text
    tokens_only = {k: v for k, v in ANSWER.items() if k not in ("passage", "question")}
    assert marks(show(tmp_path, {**tokens_only, "best_span": [2, 3]})) == ["built it. answer"]
    for beyond in ([99, 105], [9, 9]):  # [9, 9]: of a passage that was cut
        offsets = [*ANSWER["token_offsets"][:3], beyond]
        page = show(tmp_path, {**ANSWER, "best_span": [3, 3], "token_offsets": offsets})
        assert marks(page) == []
        assert "(no answer)" in page.text


def test_clusters_are_numbered_and_may_lie_in_each_other(tmp_path):
    page = show(tmp_path, COREF)
    words = " ".join(page.text.split()).split("out.jsonl")[-1].replace(EVIL, "EVIL")
    assert words == " 1 [The dog of [Anna]1]2 ate [her]1 [EVIL]2"


def test_a_classifiers_label_is_shown_with_its_text(tmp_path):
    entailment = {"label": "neutral", "probabilities": {"neutral": 0.75, "contradiction": 0.25}}
    given = [
        {"premise": EVIL, "hypothesis": "A dog ."},
        {"sentence": "A great film .", "label": "3", "verbs": ["is"], "tags": ["O"]},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, given)))
    predictions = [entailment, {"label": "4"}]
    page = show(tmp_path, *predictions, inputs=tmp_path / "in.jsonl")
    assert marks(page) == ["neutral", "4"]
    assert f"premise {EVIL}" in page.text
    assert "hypothesis A dog ." in page.text
    assert "neutral 0.750, contradiction 0.250" in page.text
    assert "A great film ." in page.text
    assert marks(show(tmp_path, *predictions)) == ["neutral", "4"]
    assert marks(show(tmp_path, {**entailment, "premise_tokens": ["A", "dog"]})) == ["neutral"]


@pytest.mark.parametrize(
    ("prediction", "inputs", "message"),
    [
        # A gold label of the inputs is no prediction.
        ({"logits": [0.5]}, '{"sentence": "Great .", "label": "4"}', "expected those of a tagger"),
        (NER, "{}\n{}\n", r"in\.jsonl has more lines than .*out\.jsonl, expected as many"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(prediction, inputs, message, tmp_path, error_line):
    predictions, given = tmp_path / "out.jsonl", tmp_path / "in.jsonl"
    predictions.write_text(json.dumps(prediction))
    given.write_text(inputs)
    error = error_line("show", predictions, tmp_path / "page.html", "--inputs", given)
    assert re.search(message, error)


def test_what_utf8_cannot_hold_is_escaped(tmp_path):
    page = show(tmp_path, {"words": ["a\ud800", "b"], "tags": ["U-X", "O"]})
    assert marks(page) == ["a\\ud800 X"]


def test_a_label_has_one_color_and_those_of_a_page_differ(tmp_path):
    names = ["PER", "LOC", "ORG", "MISC", "LOC"]
    one = {"words": names, "tags": [f"U-{name}" for name in names]}
    text = show(tmp_path, one, {**one, "words": names[::-1], "tags": one["tags"][::-1]})
    colors = [value for name, value in text.attributes if name == "class"]
    assert len(set(colors)) == 4
    assert colors[:5] == colors[:4:-1]
    assert len(colors) == 10


def test_everything_is_escaped_and_nothing_is_loaded(tmp_path):
    page = show(tmp_path, NER, SRL, COREF, ANSWER)
    allowed = {"html", "head", "meta", "title", "style", "body", "h1", "figure", "figcaption"}
    allowed |= {"small", "mark", "p", "b", "sub"}
    assert set(page.names) <= allowed
    assert page.names.count("figure") == 4
    assert page.text.count(EVIL) >= 6
    assert not [a for a in page.attributes if a[0] in ("src", "href", "onclick")]
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text


def test_a_file_name_is_escaped_too(tmp_path):
    source = tmp_path / "<i>&.jsonl"
    source.write_text(json.dumps(NER))
    main(["show", str(source), str(tmp_path / "page.html")])
    assert "i" not in Elements((tmp_path / "page.html").read_text()).names


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        (["B-A", "I-A", "B-A", "O"], [(0, 2, "A"), (2, 3, "A")]),
        (["I-A", "I-A", "I-B", "B-B"], [(0, 2, "A"), (2, 3, "B"), (3, 4, "B")]),  # IOB1
        (["U-A", "B-A", "I-A", "L-A", "U-A"], [(0, 1, "A"), (1, 4, "A"), (4, 5, "A")]),
        (["S-A", "B-A", "M-A", "E-A"], [(0, 1, "A"), (1, 4, "A")]),
        (["U-A", "I-A"], [(0, 1, "A"), (1, 2, "A")]),
        (["B-C-ARG1", "I-C-ARG1"], [(0, 2, "C-ARG1")]),
        (["O", "O"], []),
    ],
)
def test_spans_of_tags(tags, wanted):
    assert spans_of(tags) == [Span(*span) for span in wanted]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 3: not JSON .*expected one JSON object"),
        ('{"loss": 1}', r"line 3: found the keys \['loss'\], expected those of a tagger"),
        (
            '{"words": ["a"], "tags": ["O", "O"]}',
            r"line 3: found 1 words and 2 tags, expected as m",
        ),
        ("[1]", r"found '\[1\]', expected a JSON object"),
        ('{"words": ["a"], "tags": ["BI-X"]}', r"line 3: found the tag 'BI-X', expected O, B-X"),
        ('{"words": ["a"], "tags": [""]}', r"line 3: found the tag ''"),
        ('{"document": ["a"], "clusters": [[[0, 1]]]}', r"line 3: found the mention \[0, 1\]"),
        ('{"clusters": []}', r"line 3: the key 'document' is missing"),
        ('{"words": 5, "tags": ["O"]}', r"line 3: words: found 5, expected a list"),
        ('{"words": ["a", 1], "tags": ["O"]}', r"line 3: words: found 1, expected a string"),
        ('{"verbs": [3], "words": ["a"]}', r"line 3: verbs: found 3, expected an object"),
        (
            '{"clusters": [[[0]]], "document": ["a"]}',
            r"line 3: clusters: found \[0\], expected two",
        ),
        (
            '{"best_span": [0, 0], "token_offsets": [[0, 1]], "question": 5, "passage": "a"}',
            r"line 3: question: found 5, expected a string",
        ),
        (
            '{"best_span": [0.5, 1], "token_offsets": [[0, 1]]}',
            r"best_span: found 0.5, expected a w",
        ),
        ('{"label": "x", "probabilities": {"x": "y"}}', r"line 3: x: found 'y', expected a whole"),
        (f'{{"label": "x", "probabilities": {{"x": {10**400}}}}}', r"line 3: int too large"),
        ("1" * 5000, r"line 3: not JSON \(Exceeds the limit"),
        ("[" * 10**5, r"line 3: not JSON \(maximum recursion"),
        ('{"best_span": [0, 2], "token_offsets": [[0, 1]]}', r"line 3: found best_span \[0, 2\]"),
    ],
)
def test_a_bad_line_is_named_and_a_page_that_was_there_stays(tmp_path, error_line, line, message):
    (tmp_path / "out.jsonl").write_text(json.dumps(NER) + "\n\n" + line + "\n")
    (tmp_path / "page.html").write_text("kept")
    error = error_line("show", tmp_path / "out.jsonl", tmp_path / "page.html", "--force")
    assert re.search(rf"out\.jsonl.*{message}", error), error
    assert (tmp_path / "page.html").read_text() == "kept"


def test_an_empty_file_is_refused(tmp_path, error_line):
    (tmp_path / "out.jsonl").write_text("\n")
    error = error_line("show", tmp_path / "out.jsonl", tmp_path / "page.html")
    assert "no prediction found" in error
    assert not (tmp_path / "page.html").exists()
