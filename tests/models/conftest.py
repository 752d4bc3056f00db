import pytest

from tests.models.tasks import write_bilm


@pytest.fixture
def bilm(tmp_path):
    """A small biLM's files, by the names of arguments."""
    return write_bilm(tmp_path)
