"""docs/embed_corpus.md: what is marked as Bash or Python runs, and prints what the page says."""

import pytest

pytest.importorskip("pyarrow", reason="Parquet is written by pyarrow, which is not installed")

from tests.docs import test_how_to


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(test_how_to, "PAGE", test_how_to.ROOT / "docs" / "embed_corpus.md")
    chosen = test_how_to.blocks()
    assert [block.language for block in chosen] == ["sh", "bash", "python", "python", "sh"]
    assert test_how_to.run_page(tmp_path, chosen) == 3
