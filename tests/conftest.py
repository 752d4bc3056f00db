"""
What all tests share: no network, one thread, and fixtures of several folders.

Where allennlp-models is installed (`make peers`), the plugin is loaded before any test module: it
imports allennlp-models first, whose registrations do not allow a second one of the same name.
"""

import gc
import importlib.metadata
import importlib.util
import os
import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

# Before torch and transformers are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# Otherwise PyTorch's processes look the machine's name up, by the network where it is in no file.
if sys.platform == "linux":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

REPOSITORY = Path(__file__).resolve().parents[1]
# For this process and those that it starts.
QUICK_ARCHIVES = REPOSITORY / "tests" / "quick_archives"
runpy.run_path(str(QUICK_ARCHIVES / "sitecustomize.py"))
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(QUICK_ARCHIVES), os.environ.get("PYTHONPATH")))
)
# A biLM with outputs stored by AllenNLP's own module. Beside the checkout there may be one that
# TensorFlow ran.
STORED_OUTPUTS = {"allennlp": REPOSITORY / "tests" / "fixtures" / "bilm"}
TENSORFLOW = REPOSITORY.parent / "shared" / "fixtures" / "bilm"
if TENSORFLOW.is_dir():
    STORED_OUTPUTS["tensorflow"] = TENSORFLOW

if importlib.util.find_spec("allennlp_models") is not None:
    importlib.import_module("elmo_plugin.plugin")


def pytest_configure(config):
    """Hide GPUs except with `-m gpu`; build the library of kernels if its sources have changed."""
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the tests compare with a CPU's last digits
    if hasattr(config, "workerinput") or not (REPOSITORY / "setup.py").is_file():
        return
    # The environments beside .venv have an older setuptools; .venv has built the library for them.
    if int(importlib.metadata.version("setuptools").split(".")[0]) >= 71:
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=REPOSITORY, check=False)


# The longest tests start first: at the end no parallel process works on one while the others wait.
LONGEST = (
    "test_killed_at_any_moment_it_gives_the_same_table",
    "test_the_whole_command",
    "test_the_slow_page_runs",
    "test_the_page_leads_from_prose_to_a_classifier",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The longest first; the order is the same in every process of pytest-xdist."""
    items.sort(key=lambda item: item.name.partition("[")[0] not in LONGEST)


def pytest_collection_finish():
    """Imported modules are no garbage, so do not search them again in every collection."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Random numbers do not depend on the tests before."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)


@pytest.fixture(scope="session")
def repository():
    """The repository's root."""
    return REPOSITORY


@pytest.fixture(scope="session", params=STORED_OUTPUTS, ids=list(STORED_OUTPUTS))
def bilm_fixture(request):
    """The folder of a biLM with stored outputs of another implementation."""
    return STORED_OUTPUTS[request.param]


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A tiny biLM's two files, which tests only read."""
    from tests.tiny_bilm import write

    return write(tmp_path_factory.mktemp("bilm"))


@pytest.fixture
def bilm_files(tmp_path):
    """A tiny biLM's two files of this test alone, by the names of arguments."""
    from tests.tiny_bilm import write

    (tmp_path / "bilm").mkdir()
    found = write(tmp_path / "bilm")
    return {"options_file": found.options, "weight_file": found.weights}


@pytest.fixture
def error_line(capsys):
    """Run a command that must end with status 1, and return its one line of error."""
    from elmo_plugin.__main__ import main

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(one) for one in arguments])
        assert end.value.code == 1
        *notes, error = capsys.readouterr().err.splitlines()
        assert error.startswith("error: ")
        assert not any(note.startswith(("error: ", "Traceback")) for note in notes)
        return error

    return run


@pytest.fixture(params=["library", "PyTorch"])
def operators(request, monkeypatch):
    """What multiplies with frozen weights: the library of C++ kernels, or PyTorch's operators."""
    from elmo_plugin.bilm.kernels import library

    if request.param == "PyTorch":
        monkeypatch.setenv(library.VARIABLE, library.NONE)
    elif library.variant() is None:
        pytest.skip("no library of kernels")
    return request.param


@pytest.fixture
def same_bits():
    """For tests that compare bits: those of PyTorch's operators depend on the batch."""
    from elmo_plugin.bilm.kernels import library

    if library.variant() is None:
        pytest.skip("no library of kernels")


@pytest.fixture(params=["fast", "reference"])
def either_backend(request):
    """What is fast here, and the definition."""
    from elmo_plugin.bilm.kernels.backend import use_backend

    with use_backend(request.param):
        yield request.param


@pytest.fixture(scope="module")
def tensorflow():
    """TensorFlow, or a stand-in that reads the fixture's checkpoint where it is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("tensorflow") is None:
            from tests.bilm.files.bilm_tf_run.tensorflow_stand_in import module

            patch.setitem(sys.modules, "tensorflow", module())
        yield importlib.import_module("tensorflow")
