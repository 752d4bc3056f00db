"""CSS and HTML elements of the pages that commands write, in the documentation site's style."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from elmo_plugin.bilm.files.atomic_write import atomic_write

# Colours of the documentation site: Material's indigo, in the light and the slate scheme.
CSS = """
:root { color-scheme: light dark; --back: #fff; --text: #212121; --faint: #757575; --line: #ddd;
  --accent: #4051b5; --c0: #9bd3ff; --c1: #ffd08a; --c2: #b5e48c; --c3: #ffb3c1; --c4: #cdb4fb;
  --c5: #8fe3d0; --c6: #f6e58d; --c7: #e0c3a4; }
@media (prefers-color-scheme: dark) { :root { --back: #1e2129; --text: #e2e4e9; --faint: #9aa0ac;
  --line: #3a3f4b; --accent: #8c9eff; } }
* { box-sizing: border-box; }
body { font: 16px/1.6 Roboto, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
  max-width: 61rem; margin: 0 auto 4rem; padding: 0 1rem; background: var(--back);
  color: var(--text); overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; font-weight: 300; color: var(--accent); margin: 1.5rem 0; }
h2 { font-size: 1.1rem; font-weight: 500; margin: 1.5rem 0 .5rem; }
figure { margin: 0; padding: 1rem 0; border-top: 1px solid var(--line); }
figcaption { font-weight: 500; }
small { color: var(--faint); font-weight: normal; }
figcaption small { float: right; }
p { margin: .3rem 0; }
mark { color: #212121; padding: .1em .35em; border-radius: .25em; line-height: 1.9; }
mark b { font-size: .7em; margin-left: .3em; }
b.mention { color: var(--accent); }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3em .7em; text-align: left; border-bottom: 1px solid var(--line); }
th { font-weight: 500; white-space: nowrap; }
td.number { white-space: nowrap; text-align: right; font-variant-numeric: tabular-nums; }
td.weight { color: var(--text); background: color-mix(in srgb, var(--accent) var(--share),
  var(--back)); }
td.strong { color: var(--back); }
""" + "".join(f".c{k} {{ background: var(--c{k}); }}\n" for k in range(8))
NUM_COLORS = 8

# The content security policy keeps the page from loading files and running scripts.
_START = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<h1>{title}</h1>
"""
END = "</body>\n</html>\n"


def start(title: str) -> str:
    """Return the beginning of a page, with `title` as its heading; `END` is the end of a page."""
    return _START.format(title=html.escape(title), css=CSS)


def layer_name(layer: int) -> str:
    """Return the name of a layer in tables and pages: `token layer`, `LSTM layer 1`, ..."""
    return f"LSTM layer {layer}" if layer else "token layer"


class Markup(str):
    """Text that is HTML already. Any other text is escaped before it becomes part of a page."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table. A `Markup` cell is a whole `<td>` element, any other is text."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>"
        + "".join(c if isinstance(c, Markup) else f"<td>{html.escape(c)}</td>" for c in row)
        + "</tr>\n"
        for row in rows
    )
    return f'<div class="table"><table>\n<tr>{head}</tr>\n{body}</table></div>\n'


def write_page(path: str | Path, parts: Iterable[str]) -> int:
    """Write a page atomically, and return the number of its parts."""
    # Names of files, arguments and strings in JSON may have lone surrogates, which UTF-8 lacks.
    with (
        atomic_write(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace") as page,
    ):
        return sum(1 for part in parts if page.write(part))
