"""docs/architecture.md: the files it names are there, and its snippets print what it says."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
NAME = re.compile(r"`([\w./]+(?:\.py|\.jsonnet|/))`")
SNIPPET = re.compile(r"^```python\n(.*?)^```\n^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def missing(page):
    """Files and folders that are named as code, from the repository's root or the package."""
    names = set(NAME.findall(page))
    return {n for n in names if not any((at / n).exists() for at in (ROOT, ROOT / "elmo_plugin"))}


def test_every_file_that_is_named_is_there():
    assert len(NAME.findall(PAGE)) > 50
    assert missing(PAGE) == set()
    assert missing("`bilm/model/lstm.py` and `bilm/gone.py`") == {"bilm/gone.py"}


def test_every_room_of_the_bilm_is_named():
    rooms = [path.parent.name for path in (ROOT / "elmo_plugin" / "bilm").glob("*/__init__.py")]
    assert len(rooms) >= 6
    assert [room for room in rooms if f"`bilm/{room}/`" not in PAGE] == []


def test_the_snippets_print_what_the_page_says():
    names = {}
    found = SNIPPET.findall(PAGE)
    assert len(found) == PAGE.count("```python") == 2
    for code, output in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/architecture.md", "exec"), names)
        assert printed.getvalue() == output
