"""What the benchmarks' tests share."""

import pytest

from benchmarks.rounds import MatrixRate


@pytest.fixture
def steady_machine(monkeypatch):
    """Its rate is not measured, for that takes longer than tiny work, and no round is repeated."""
    monkeypatch.setattr(MatrixRate, "__init__", lambda self, *_, **__: None)
    monkeypatch.setattr(MatrixRate, "__call__", lambda self: 100.0)
