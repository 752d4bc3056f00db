"""
Griffe extension: reads AllenNLP's docstring sections (`# Parameters`) as NumPy's, and links public
names to the reference.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "elmo_plugin"
SECTION = re.compile(r"^# (Parameters|Returns|Raises|Attributes|Examples)\n+", re.MULTILINE)
# `name : `type`, optional (default = `x`)` and `type` on a line of their own.
TYPE = re.compile(r"^((?:[\w*]+(?:, [\w*]+)* : )?)`([^`\n]+)`(.*)$", re.MULTILINE)
DEFAULT = re.compile(r", optional(?: \(default = (.*)\))?$")
# Blocks of code, headings and links stay; a name in code becomes a link.
NAME = re.compile(r"^```.*?^```$|^#.*?$|\[[^\]]*\]|`(\w+)`", re.MULTILINE | re.DOTALL)


@cache
def public_names() -> dict[str, str]:
    """Return the path of each public name, in the order of `elmo_plugin/__init__.py`."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    homes = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
    )
    return {name: f"{home}.{name}" for name, home in homes.items()}


def with_links(text: str) -> str:
    """Link each public name in code, such as `Elmo`, to the reference."""

    def linked(found: re.Match[str]) -> str:
        path = public_names().get(found[1] or "")
        return f"[{found[0]}][{path}]" if path else found[0]

    return NAME.sub(linked, text)


def to_numpy_style(text: str) -> str:
    """Return a docstring in NumPy's style."""
    first, *rest = SECTION.split(text)
    parts = [first]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        items = TYPE.sub(lambda found: found[1] + found[2] + DEFAULT.sub("", found[3]), body)
        parts.append(f"{title}\n{'-' * len(title)}\n{items}")
    return "".join(parts)


class AllenNlpDocstrings(griffe.Extension):
    """Rewrites every docstring when its object is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = with_links(to_numpy_style(obj.docstring.value))
