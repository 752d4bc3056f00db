"""HTML page of a word's nearest neighbours."""

import html
from collections.abc import Sequence

from elmo_plugin.bilm.use.neighbours import Neighbour
from elmo_plugin.pages.html_page import END, Markup, layer_name, start, table


def neighbours_page(
    query: Sequence[str], position: int, neighbours: Sequence[Sequence[Neighbour]]
) -> str:
    """Return an HTML page with the result of `nearest_neighbours`, one table per layer."""
    parts = [start(f"Nearest neighbours of “{query[position]}”"), _marked(query, position)]
    for layer, found in enumerate(neighbours):
        parts.append(f"<h2>{layer_name(layer)}</h2>\n")
        rows = [
            [
                *(
                    Markup(f'<td class="number">{number}</td>')
                    for number in (f"{one.similarity:.3f}", one.line, one.num_lines)
                ),
                Markup(f"<td>{_marked(one.tokens, one.position)}</td>"),
            ]
            for one in found
        ]
        parts.append(table(["cosine", "line", "lines", "in its sentence"], rows))
    return "".join([*parts, END])


def _marked(tokens: Sequence[str], position: int) -> str:
    words = [html.escape(token) for token in tokens]
    words[position] = f'<mark class="c0">{words[position]}</mark>'
    return f"<p>{' '.join(words)}</p>\n"
