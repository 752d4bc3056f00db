import pytest

from experiments.table1.tasks import TASKS


@pytest.fixture(autouse=True)
def no_paper_data(monkeypatch):
    for task in TASKS.values():
        for name in task.variables:
            monkeypatch.delenv(name, raising=False)
