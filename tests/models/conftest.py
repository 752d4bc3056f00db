import pytest
from classifier_cases import write_bilm


@pytest.fixture
def bilm(tmp_path):
    """A small biLM's files, by the names of arguments."""
    return write_bilm(tmp_path)
