"""`show PREDICTIONS PAGE`: what models predicted, marked in its text, as one page for a browser."""

import argparse
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Dark text is read on each.
COLORS = ("#9bd3ff", "#ffd08a", "#b5e48c", "#ffb3c1", "#cdb4fb", "#8fe3d0", "#f6e58d", "#e0c3a4")

# Nothing is loaded from elsewhere, and nothing runs.
PAGE = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }}
h1 {{ font-size: 1.2em; }}
figure {{ margin: 0 0 1em; padding: 1em 0; border-top: 1px solid #ccc; }}
figcaption {{ font-weight: bold; }}
figcaption small {{ font-weight: normal; color: #777; float: right; }}
.spans, .entities {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
"""
END = "</body>\n</html>\n"


class Span(NamedTuple):
    """`start` and `end`: of the text's characters, or of tokens; `end` is behind the last."""

    start: int
    end: int
    label: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`predictions`, `page`, `--force`."""
    parser.add_argument(
        "predictions",
        help="a file of `allennlp predict --output-file`: one JSON object a line, of a tagger "
        "(NER), semantic roles, coreference or reading comprehension",
    )
    parser.add_argument("page", help="the HTML file to write")
    parser.add_argument("--force", action="store_true", help="replace a page that exists")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If the page exists and `--force` is not given, spaCy is not installed, or a line is not
        JSON, no prediction of a known kind, or contradicts itself; with path and line.
    """
    from elmo_plugin.bilm.files.whole_file import whole_file
    from elmo_plugin.commands.outputs import check_output

    check_output(args.page, [args.predictions], args.force)
    count = 0
    colors: dict[str, str] = {}
    with whole_file(args.page) as aside, aside.open("w", encoding="utf-8") as page:
        page.write(PAGE.format(title=html.escape(Path(args.predictions).name)))
        for number, line in _lines(args.predictions):
            try:
                caption, content = to_html(_parsed(line), colors)
            except KeyError as error:
                raise ValueError(
                    f"{args.predictions}, line {number}: the key {error} is missing"
                ) from error
            except (ValueError, TypeError, IndexError, AttributeError) as error:
                raise ValueError(f"{args.predictions}, line {number}: {error}") from error
            page.write(
                f"<figure>\n<figcaption>{html.escape(caption)} <small>{number}</small>"
                f"</figcaption>\n{content}\n</figure>\n"
            )
            count += 1
        if not count:
            raise ValueError(f"{args.predictions}: no prediction found, expected one a line")
        page.write(END)
    print(f"{count} predictions in {args.page}")


def to_html(prediction: dict[str, Any], colors: dict[str, str]) -> tuple[str, str]:
    """
    # Parameters

    prediction : `dict[str, Any]`
        What `sentence_tagger` (`words`, `tags`), `semantic_role_labeling` (`words`, `verbs`),
        `coreference_resolution` (`document`, `clusters`) or `reading_comprehension`
        (`best_span`, `token_offsets`, `passage_tokens`) puts out.
    colors : `dict[str, str]`
        Of the labels seen so far; new ones are added, so that a page gives each the same.

    # Returns

    `tuple[str, str]`
        A caption, and the text with what was predicted in it as HTML, escaped.

    # Raises

    `ValueError`
        If the prediction is of no such kind, or its spans lie outside its text.
    """
    if "best_span" in prediction:
        return _answer(prediction, colors)
    if "clusters" in prediction:
        return "", _clusters(prediction["document"], prediction["clusters"])
    if "verbs" in prediction:
        words = prediction["words"]
        frames = [
            (verb["verb"], _tagged(words, verb["tags"], colors)) for verb in prediction["verbs"]
        ]
        rows = "".join(f"<p>{html.escape(verb)}</p>\n{marked}" for verb, marked in frames)
        return "", rows or _entities(_joined(words)[0], [], colors)
    if "tags" in prediction and "words" in prediction:
        return "", _tagged(prediction["words"], prediction["tags"], colors)
    raise ValueError(
        f"found the keys {sorted(prediction)}, expected those of a tagger (words, tags), of "
        "semantic roles (words, verbs), of coreference (document, clusters) or of reading "
        "comprehension (best_span, token_offsets, passage_tokens)"
    )


def spans_of(tags: list[str]) -> list[Span]:
    """
    # Parameters

    tags : `list[str]`
        IOB1, BIO, BIOUL or BMES, one a token.

    # Returns

    `list[Span]`
        Of tokens. A tag that goes on with nothing opens a span.
    """
    spans: list[Span] = []
    is_open = False
    for place, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        if prefix == "O":
            is_open = False
            continue
        if prefix not in set("BIULMES"):
            raise ValueError(f"found the tag {tag!r}, expected O, B-X, I-X, U-X, L-X, M-X or S-X")
        goes_on = is_open and prefix in "IMLE" and spans[-1].label == label
        if goes_on:
            spans[-1] = spans[-1]._replace(end=place + 1)
        else:
            spans.append(Span(place, place + 1, label))
        is_open = prefix not in "ULSE"
    return spans


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Those that are not blank, with their numbers."""
    with Path(path).open(encoding="utf-8") as lines:
        try:
            yield from ((n, line) for n, line in enumerate(lines, start=1) if line.strip())
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error})") from error


def _parsed(line: str) -> dict[str, Any]:
    try:
        prediction = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(prediction, dict):
        raise ValueError(f"found {line.strip()[:80]!r}, expected a JSON object")
    return prediction


def _joined(tokens: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """The tokens with spaces between, and the characters of each."""
    offsets, end = [], -1
    for token in tokens:
        start, end = end + 1, end + 1 + len(token)
        offsets.append((start, end))
    return " ".join(tokens), offsets


def _tagged(words: list[str], tags: list[str], colors: dict[str, str]) -> str:
    if len(words) != len(tags):
        raise ValueError(f"found {len(words)} words and {len(tags)} tags, expected as many")
    text, offsets = _joined(words)
    spans = [
        Span(offsets[start][0], offsets[end - 1][1], label) for start, end, label in spans_of(tags)
    ]
    return _entities(text, spans, colors)


def _answer(prediction: dict[str, Any], colors: dict[str, str]) -> tuple[str, str]:
    offsets, (first, last) = prediction["token_offsets"], prediction["best_span"]
    if not 0 <= first <= last < len(offsets):
        raise ValueError(f"found best_span {[first, last]}, expected tokens below {len(offsets)}")
    text = prediction.get("passage")
    if text is None:  # allennlp-models gives the tokens only
        text = ""
        for token, (start, _) in zip(prediction["passage_tokens"], offsets):
            text = text.ljust(start) + token
    start, end = offsets[first][0], offsets[last][1]
    question = prediction.get("question") or " ".join(prediction.get("question_tokens", []))
    if start >= min(end, len(text)):  # SQuAD 2.0: the token behind the passage
        return f"{question} (no answer)", _entities(text, [], colors)
    return question, _entities(text, [Span(start, end, "answer")], colors)


def _entities(text: str, spans: list[Span], colors: dict[str, str]) -> str:
    # displaCy escapes the text, but not the labels.
    entities = [
        {"start": start, "end": end, "label": html.escape(label)} for start, end, label in spans
    ]
    for span in spans:
        colors.setdefault(html.escape(span.label), COLORS[len(colors) % len(COLORS)])
    return _displacy({"text": text, "ents": entities, "title": None}, "ent", colors)


def _clusters(tokens: list[str], clusters: list[list[list[int]]]) -> str:
    """Mentions may lie in each other: displaCy's spans are lines under the text."""
    spans = []
    for number, cluster in enumerate(clusters, start=1):
        for first, last in cluster:
            if not 0 <= first <= last < len(tokens):
                raise ValueError(
                    f"found the mention {[first, last]}, expected tokens below {len(tokens)}"
                )
            spans.append({"start_token": first, "end_token": last + 1, "label": str(number)})
    colors = {str(number): COLORS[number % len(COLORS)] for number in range(len(clusters) + 1)}
    return _displacy({"text": None, "tokens": tokens, "spans": spans}, "span", colors)


def _displacy(content: dict[str, Any], style: str, colors: dict[str, str]) -> str:
    from spacy import displacy

    return displacy.render(
        content, style=style, manual=True, page=False, jupyter=False, options={"colors": colors}
    )
