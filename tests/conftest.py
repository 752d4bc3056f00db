"""
What all tests share: no network, one thread, and the files of ../shared where they are there.

Where allennlp-models is installed (`make peers`), the plugin is loaded before any test module: it
imports allennlp-models first, whose registrations do not allow a second one of the same name.
"""

import importlib.util
import os
from pathlib import Path

import pytest

# Before torch and transformers are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"

if importlib.util.find_spec("allennlp_models") is not None:
    importlib.import_module("elmo_plugin.plugin")


def pytest_collection_modifyitems(items):
    """Tests marked `gold` need ../shared, which is no part of the repository."""
    if not SHARED.is_dir():
        skip = pytest.mark.skip(reason="no ../shared: the stored outputs are not in the repository")
        for item in items:
            if item.get_closest_marker("gold"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def repository():
    """The repository's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared():
    """../shared; for tests marked `gold`."""
    return SHARED


@pytest.fixture(scope="session")
def bilm_fixture(shared):
    """The biLM with stored outputs; for tests marked `gold`."""
    return shared / "fixtures" / "bilm"


@pytest.fixture
def bilm_files(tmp_path):
    """A tiny biLM's two files of this test alone, by the names of arguments."""
    from tests.tiny_bilm import write

    (tmp_path / "bilm").mkdir()
    found = write(tmp_path / "bilm")
    return {"options_file": found.options, "weight_file": found.weights}


@pytest.fixture(params=["private", "public", "plain"])
def operators(request, monkeypatch):
    """Every path of a product; where operators are missing, the plain one several times."""
    from elmo_plugin.bilm.kernels import int8, prepacked_linear

    if request.param != "private":
        monkeypatch.setattr(prepacked_linear, "onednn_works", lambda dtype: False)
    if request.param == "plain":
        monkeypatch.setattr(prepacked_linear, "conversion_works", lambda: False)
        monkeypatch.setattr(int8, "works", lambda kind: False)
    return request.param


@pytest.fixture(params=["fast", "reference"])
def either_backend(request):
    """What is fast here, and the definition."""
    from elmo_plugin.bilm.kernels.backend import use_backend

    with use_backend(request.param):
        yield request.param
