"""HTML page that shows the predictions of AllenNLP models, marked in their input texts."""

import html
import json
from collections.abc import Iterator
from itertools import accumulate, repeat, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.pages.html_page import END, NUM_COLORS, start

KINDS = (
    "a tagger (words, tags), semantic roles (words, verbs), coreference (document, clusters), "
    "reading comprehension (best_span, token_offsets, passage_tokens) or a classifier (label)"
)
# Keys of a model's input that a page shows. Others, such as a gold `label`, are not its prediction.
CLASSIFIED = ("sentence", "tokens", "premise", "hypothesis")
TEXTS = (*CLASSIFIED, "question", "passage")


class Span(NamedTuple):
    """Labelled part of a text, from `start` to `end` (exclusive), in characters or tokens."""

    start: int
    end: int
    label: str


def page_of(predictions: str | Path, inputs: str | Path | None = None) -> Iterator[str]:
    """
    Yield an HTML page in parts: its beginning, a figure for each prediction in a file, and its end.

    `predictions` is a file that `allennlp predict --output-file` wrote, one JSON object per line.
    `inputs` is the input file of that command, for texts that the predictions do not contain.
    Raise a `ValueError` if a line is not a prediction of a known kind, or if the file has none.
    """
    yield start(Path(predictions).name)
    colors: dict[str, int] = {}
    number = None
    for number, prediction, given in _with_inputs(predictions, inputs):
        try:
            texts = {key: given[key] for key in TEXTS if key in given}
            caption, content = to_html({**texts, **prediction}, colors)
        except KeyError as error:
            raise ValueError(f"{predictions}, line {number}: the key {error} is missing") from error
        except (ValueError, OverflowError) as error:  # of a number of more than 308 digits
            raise ValueError(f"{predictions}, line {number}: {error}") from error
        yield (
            f"<figure>\n<figcaption>{html.escape(caption)} <small>{number}</small></figcaption>\n"
            f"{content}\n</figure>\n"
        )
    if number is None:
        raise ValueError(f"{predictions}: no prediction found, expected one per line")
    yield END


def _with_inputs(
    path: str | Path, inputs: str | Path | None
) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    lines = _objects(path)
    pairs: Any = zip(lines, repeat((0, {})))  # a prediction may hold its texts
    if inputs is not None:
        pairs = zip_longest(lines, _objects(inputs))
    for line, given in pairs:
        if line is None or given is None:
            more, fewer = (inputs, path) if line is None else (path, inputs)
            raise ValueError(f"{more} has more lines than {fewer}, expected as many")
        yield *line, given[1]


def _objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and the JSON object of each non-blank line."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        name = f"{path}, line {number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
            raise ValueError(
                f"{name}: not JSON ({error}), expected one JSON object per line"
            ) from error
        if not isinstance(found, dict):
            raise ValueError(f"{name}: found {quoted(line.strip())}, expected a JSON object")
        yield number, found


def to_html(prediction: dict[str, Any], colors: dict[str, int]) -> tuple[str, str]:
    """
    Return a prediction's caption (plain text), and its input text as HTML with the prediction
    marked.

    The prediction comes from a tagger, a classifier, or a model for semantic role labelling,
    coreference or reading comprehension. `colors` maps labels to colour numbers. New labels are
    added to `colors`, so that a label has one colour on the whole page. Raise a `ValueError` or
    `KeyError` if the prediction is of another kind, or a span lies outside the text.
    """
    if "best_span" in prediction:
        return _answer(prediction, colors)
    if "clusters" in prediction:
        return "", _clusters(_strings(prediction, "document"), _list(prediction, "clusters"))
    if "verbs" in prediction:
        words, frames = _strings(prediction, "words"), _list(prediction, "verbs")
        rows = [
            f"<p><small>{html.escape(_checked(str, frame['verb'], 'verb'))}</small></p>\n"
            + _tagged(words, _strings(frame, "tags"), colors)
            for frame in (_checked(dict, one, "verbs") for one in frames)
        ]
        return "", "\n".join(rows) or _marked(" ".join(words), [], colors)
    if "tags" in prediction and "words" in prediction:
        return "", _tagged(_strings(prediction, "words"), _strings(prediction, "tags"), colors)
    if "label" in prediction:
        return _label(prediction, colors)
    raise ValueError(f"found the keys {sorted(prediction)}, expected those of {KINDS}")


def spans_of(tags: list[str]) -> list[Span]:
    """
    Convert a sentence's tags to labelled spans of tokens.

    `tags` has one tag per token, in IOB1, BIO, BIOUL, BMES or BIOES. A tag that does not continue a
    span starts a new one. Raise a `ValueError` if none of these schemes has the tag's prefix.
    """
    spans: list[Span] = []
    is_open = False
    for index, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        if prefix == "O":
            is_open = False
            continue
        if prefix not in set("BIULMES"):
            raise ValueError(f"found the tag {tag!r}, expected O, B-X, I-X, U-X, L-X, M-X or S-X")
        if is_open and prefix in "IMLE" and spans[-1].label == label:
            spans[-1] = spans[-1]._replace(end=index + 1)
        else:
            spans.append(Span(index, index + 1, label))
        is_open = prefix not in "ULSE"
    return spans


# --- kinds of predictions ------------------------------------------------------------------------


def _tagged(words: list[str], tags: list[str], colors: dict[str, int]) -> str:
    if len(words) != len(tags):
        raise ValueError(f"found {len(words)} words and {len(tags)} tags, expected as many")
    return _marked_tokens(words, spans_of(tags), colors)


def _answer(prediction: dict[str, Any], colors: dict[str, int]) -> tuple[str, str]:
    offsets = [_pair(one, "token_offsets") for one in _list(prediction, "token_offsets")]
    first, last = _pair(prediction["best_span"], "best_span")
    if not 0 <= first <= last < len(offsets):
        raise ValueError(f"found best_span {[first, last]}, expected tokens below {len(offsets)}")
    if "question" in prediction:
        question = _checked(str, prediction["question"], "question")
    else:
        question = " ".join(_strings(prediction, "question_tokens"))
    if "passage" in prediction:
        text = _checked(str, prediction["passage"], "passage")
        begin, end = offsets[first][0], offsets[last][1]
        if 0 <= begin < min(end, len(text)):
            return question, _marked(text, [Span(begin, end, "answer")], colors)
    else:  # a model of allennlp-models returns only the tokens of the passage
        tokens = _strings(prediction, "passage_tokens")
        text = " ".join(tokens)
        if first < len(tokens):
            return question, _marked_tokens(tokens, [Span(first, last + 1, "answer")], colors)
    # The span is the token after the passage: in SQuAD 2.0, that means "no answer".
    return f"{question} (no answer)", _marked(text, [], colors)


def _clusters(tokens: list[str], clusters: list[Any]) -> str:
    """Return a text as HTML with numbered brackets around mentions, which may be nested."""
    before: dict[int, list[tuple[int, str]]] = {}
    after: dict[int, list[tuple[int, str]]] = {}
    for number, cluster in enumerate(clusters, start=1):
        for mention in _checked(list, cluster, "clusters"):
            first, last = _pair(mention, "clusters")
            if not 0 <= first <= last < len(tokens):
                raise ValueError(
                    f"found the mention {[first, last]}, expected tokens below {len(tokens)}"
                )
            # If mentions share a boundary, the longer one opens first and closes last.
            length = last - first
            bracket = f'<b class="mention">]<sub>{number}</sub></b>'
            before.setdefault(first, []).append((-length, '<b class="mention">[</b>'))
            after.setdefault(last, []).append((length, bracket))
    words = [
        "".join(text for _, text in sorted(before.get(index, [])))
        + html.escape(token)
        + "".join(text for _, text in sorted(after.get(index, [])))
        for index, token in enumerate(tokens)
    ]
    return f"<p>{' '.join(words)}</p>"


def _label(prediction: dict[str, Any], colors: dict[str, int]) -> tuple[str, str]:
    label = str(prediction["label"])
    texts = []
    for name in CLASSIFIED:
        for key in (name, f"{name}_tokens"):
            if key in prediction:
                value = prediction[key]
                text = value if isinstance(value, str) else " ".join(_strings(prediction, key))
                shown = "" if name in ("sentence", "tokens") else f"<small>{name}</small> "
                texts.append(f"<p>{shown}{html.escape(text)}</p>")
                break
    probabilities = _checked(dict, prediction.get("probabilities", {}), "probabilities")
    shares = ", ".join(
        f"{name} {one if isinstance(one, float) else _checked(int, one, name):.3f}"
        for name, one in probabilities.items()
    )
    color = colors.setdefault(label, len(colors) % NUM_COLORS)
    marked = f'<mark class="c{color}">{html.escape(label)}</mark>'
    return "", "\n".join([*texts, f"<p>{marked} <small>{html.escape(shares)}</small></p>"])


def _marked_tokens(tokens: list[str], spans: list[Span], colors: dict[str, int]) -> str:
    starts = list(accumulate((len(token) + 1 for token in tokens), initial=0))
    characters = [Span(starts[first], starts[end] - 1, label) for first, end, label in spans]
    return _marked(" ".join(tokens), characters, colors)


def _marked(text: str, spans: list[Span], colors: dict[str, int]) -> str:
    """Return a text as HTML with `<mark>` elements around its spans, which must not overlap."""
    parts, done = [], 0
    for begin, end, label in spans:
        color = colors.setdefault(label, len(colors) % NUM_COLORS)
        parts.append(html.escape(text[done:begin]))
        parts.append(
            f'<mark class="c{color}">{html.escape(text[begin:end])} <b>{html.escape(label)}</b>'
            "</mark>"
        )
        done = end
    return f"<p>{''.join(parts)}{html.escape(text[done:])}</p>"


# --- types of JSON values -------------------------------------------------------------------------


def _checked(kind: type, value: Any, name: str) -> Any:
    """Return `value` if its type is `kind`; otherwise raise a `ValueError` about the key `name`."""
    if not isinstance(value, kind) or isinstance(value, bool):
        words = {str: "a string", list: "a list", dict: "an object", int: "a whole number"}
        raise ValueError(f"{name}: found {quoted(value)}, expected {words[kind]}")
    return value


def _list(prediction: dict[str, Any], key: str) -> list[Any]:
    return _checked(list, prediction[key], key)


def _strings(prediction: dict[str, Any], key: str) -> list[str]:
    return [_checked(str, one, key) for one in _list(prediction, key)]


def _pair(value: Any, name: str) -> tuple[int, int]:
    if len(_checked(list, value, name)) != 2:
        raise ValueError(f"{name}: found {quoted(value)}, expected two numbers")
    return _checked(int, value[0], name), _checked(int, value[1], name)
