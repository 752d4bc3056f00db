"""docs/ten_minutes.ipynb runs, and what it stores and says is what it gives."""

import json
import re

import pytest

from tests.docs.notebook import execute
from tests.docs.page import ROOT

NOTEBOOK = ROOT / "docs" / "ten_minutes.ipynb"


def printed(notebook):
    """The output of each cell: printed text without its numbers, and figures."""
    return [
        [re.sub(r"\d+", "0", "".join(output.get("text", "figure"))) for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.slow
def test_the_notebook_gives_what_it_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    names = {}
    found = execute(NOTEBOOK, names)
    stored = json.loads(NOTEBOOK.read_text("utf-8"))
    again = (
        "expected what the notebook stores: python -m tests.docs.notebook docs/ten_minutes.ipynb"
    )
    assert printed(found) == printed(stored), again
    same, other = names["similarities"][2][0, 1:3].mean(), names["similarities"][2][0, 3:].mean()
    assert same > other + 0.05
    assert min(names["counts"]) > 0.5  # by chance 0.4
    assert names["elmo_curve"][-1] > names["curve"][-1] + 0.2


def test_it_is_stored_with_its_figures():
    cells = printed(json.loads(NOTEBOOK.read_text("utf-8")))
    assert sum("figure" in cell for cell in cells) == 3
