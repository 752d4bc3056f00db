"""Griffe extension: reads AllenNLP's docstring sections (`# Parameters`) as NumPy's."""

import re
from typing import Any

import griffe

SECTION = re.compile(r"^# (Parameters|Returns|Raises|Attributes|Examples)\n+", re.MULTILINE)
# `name : `type`, optional (default = `x`)` and `type` on a line of their own.
TYPE = re.compile(r"^((?:[\w*]+(?:, [\w*]+)* : )?)`([^`\n]+)`(.*)$", re.MULTILINE)
DEFAULT = re.compile(r", optional(?: \(default = (.*)\))?$")


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
            obj.docstring.value = to_numpy_style(obj.docstring.value)
