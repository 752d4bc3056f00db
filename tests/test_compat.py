"""
Each repair of elmo_plugin/compat.py, with the stock failure beside it: a case is run in a process
of its own without the repairs, where it must fail, and here with them. Where the stock case no
longer fails, the repair is to be deleted.
"""

import functools
import io
import json
import multiprocessing
import os
import pickle
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import numpy
import pytest
import spacy
import torch
from allennlp.common import Params, file_utils
from allennlp.common import util as common_util
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, SpacyTokenizer
from allennlp.nn.parallel import ddp_accelerator
from allennlp.nn.util import masked_softmax
from allennlp.training import gradient_descent_trainer
from allennlp.training import util as training_util
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.moving_average import ExponentialMovingAverage
from transformers import BertTokenizerFast

from tests.fresh_process import run


def reduce_on_plateau():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = LearningRateScheduler.from_params(
        Params({"type": "reduce_on_plateau", "mode": "max", "factor": 0.5, "patience": 1}),
        optimizer=optimizer,
    )
    rates = []
    for metric in (0.3, 0.2, 0.1, 0.1):
        scheduler.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def autocast():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gradient_descent_trainer.amp.autocast(False):
            return torch.is_autocast_enabled("cuda")


def ddp_grad_scaler():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.filterwarnings("ignore", category=UserWarning)  # no GPU here
        return type(ddp_accelerator.amp.GradScaler()).__name__


def embedding_and_dense_gradients(sparse):
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(5, 2, sparse=sparse)
    linear = torch.nn.Linear(2, 2)
    linear(embedding(torch.tensor([1, 3, 1]))).pow(2).sum().backward()  # row 1 twice
    return [embedding.weight, linear.weight, linear.bias]


def sparse_gradient_norm():
    parameters = embedding_and_dense_gradients(sparse=True)
    norm = gradient_descent_trainer.clip_grad_norm_(parameters, 0.1).item()
    return [norm, [p.grad.to_dense().tolist() for p in parameters]]


def masked_softmax_in_bfloat16():
    vector, mask = torch.ones(1, 4, dtype=torch.bfloat16), torch.tensor([[True, False, True, True]])
    return masked_softmax(vector, mask).double().tolist()


NUMBERS = {
    "float64": numpy.float64(0.5),
    "float32": numpy.float32(0.25),
    "int64": numpy.int64(3),
    "bool": numpy.bool_(True),
}


def numpy_scalars():
    buffer = io.BytesIO()
    torch.save({"metric_tracker": NUMBERS}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)["metric_tracker"]
    return {name: [type(value).__name__, value.item()] for name, value in loaded.items()}


def moving_average():
    weight = torch.nn.Parameter(torch.zeros(1))
    average = ExponentialMovingAverage([("weight", weight)], decay=0.5)
    buffer = io.BytesIO()
    torch.save(average.state_dict(), buffer)
    buffer.seek(0)
    average.load_state_dict(torch.load(buffer))
    weight.data.fill_(1.0)
    average.apply()
    if average._shadows["weight"].item() == 0:
        raise AssertionError("the average does not move")
    return average._shadows["weight"].item()


SENTENCE = "Don't split U.S. dollars, e.g. $5.00 (five)!"


def spacy_tokenizer():
    def download(name):
        raise ConnectionError(f"{name} would be downloaded")

    common_util.spacy_download = download
    return [token.text for token in SpacyTokenizer().tokenize(SENTENCE)]


# Case, what the stock run says, what the repaired run gives (`None`: see the test of its own).
def transformers_tokenizer():
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.txt")
        vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nit\n")
        BertTokenizerFast(str(vocabulary)).save_pretrained(folder)
        Path(folder, "config.json").write_text('{"model_type": "bert"}')
        tokenizer = PretrainedTransformerTokenizer(folder)
        return [token.text for token in tokenizer.tokenize("it")]


def spawned_data_workers():
    """The workers print what they are given: only their start is at stake."""
    reader = DatasetReader.by_name("sequence_tagging")()
    loader = MultiProcessDataLoader(
        reader,
        "-",
        batch_size=1,
        num_workers=1,
        max_instances_in_memory=1,
        start_method="spawn",
    )
    context = multiprocessing.get_context("spawn")
    loader._instance_worker = loader._batch_worker = print
    statuses = []
    for start in (loader._start_instance_workers, loader._start_batch_workers):
        queue = context.JoinableQueue()
        (worker,), connections = start(queue, context)
        worker.join(400)
        statuses.append(worker.exitcode)
        del connections
    return statuses


def local_file_without_a_home():
    with mock.patch.object(file_utils, "CACHE_DIRECTORY", "/dev/null/cache"):
        return file_utils.cached_path("setup.py")


CASES = {
    reduce_on_plateau: ("TypeError: .*verbose", [1.0, 1.0, 0.5, 0.5]),
    autocast: ("FutureWarning: .*deprecated", False),
    ddp_grad_scaler: ("FutureWarning: .*deprecated", "GradScaler"),
    masked_softmax_in_bfloat16: (
        "TypeError: Does not support dtype torch.bfloat16",
        [[torch.tensor(1 / 3).bfloat16().item() * one for one in (1, 0, 1, 1)]],
    ),
    sparse_gradient_norm: ("NotImplementedError: .*SparseCPU", None),
    numpy_scalars: (
        "UnpicklingError: ",
        {n: [type(value).__name__, value.item()] for n, value in NUMBERS.items()},
    ),
    moving_average: ("AssertionError: the average does not move", 0.5),
    spacy_tokenizer: ("ConnectionError: en_core_web_sm would be downloaded", None),
    transformers_tokenizer: (
        "AttributeError: add_special_tokens conflicts",
        ["[CLS]", "it", "[SEP]"],
    ),
    local_file_without_a_home: ("NotADirectoryError: .*/dev/null", "setup.py"),
    spawned_data_workers: ("RuntimeError: A SemLock created in a fork context", [0, 0]),
}


def outcome(case):
    try:
        return {"value": case()}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: " + str(error).replace("\n", " ")}


@pytest.fixture(scope="module")
def stock():
    child = run("import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", __file__)
    return json.loads(child.stdout.splitlines()[-1])


@pytest.fixture(autouse=True)
def repaired(monkeypatch):
    from elmo_plugin import compat

    compat.repair()
    monkeypatch.setattr(common_util, "spacy_download", common_util.spacy_download)


without_model = pytest.mark.skipif(
    spacy.util.is_package("en_core_web_sm"), reason="en_core_web_sm is installed"
)


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=without_model) if c is spacy_tokenizer else c for c in CASES],
    ids=lambda case: case.__name__,
)
def test_stock_fails_and_the_repair_mends_it(case, stock):
    failure, expected = CASES[case]
    if case is sparse_gradient_norm and "value" in stock[case.__name__]:  # PyTorch 2.14 and later
        assert stock[case.__name__] == outcome(case)
        return
    with pytest.raises(AssertionError, match=failure):
        raise AssertionError(stock[case.__name__].get("error"))
    value = outcome(case)
    assert "error" not in value
    if expected is not None:
        assert value["value"] == expected


def test_sparse_gradients_are_clipped_as_dense_ones():
    norm, gradients = sparse_gradient_norm()
    dense = embedding_and_dense_gradients(sparse=False)
    assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(dense, 0.1).item())
    for gradient, parameter in zip(gradients, dense, strict=True):
        torch.testing.assert_close(torch.tensor(gradient), parameter.grad)


def test_dense_gradients_go_to_pytorch():
    ours, theirs = (embedding_and_dense_gradients(sparse=False) for _ in range(2))
    norm = training_util.clip_grad_norm_(ours, 0.1)
    assert torch.equal(norm, torch.nn.utils.clip_grad_norm_(theirs, 0.1))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


def test_loading_stays_safe():
    class Attack:
        def __reduce__(self):
            return (os.getenv, ("HOME",))

    for value in (Attack(), numpy.array([Attack()], dtype=object), numpy.zeros(3)):
        buffer = io.BytesIO()
        torch.save({"metric_tracker": value}, buffer)
        buffer.seek(0)
        with pytest.raises(pickle.UnpicklingError):
            torch.load(buffer)


@without_model
def test_spacy_tokens_follow_the_english_rules():
    assert spacy_tokenizer() == (
        "Do n't split U.S. dollars , e.g. $ 5.00 ( five ) !".split()  # noqa: SIM905
    )


def test_repairing_twice_is_repairing_once():
    from elmo_plugin import compat

    before = gradient_descent_trainer.amp
    compat.repair()
    assert gradient_descent_trainer.amp is before


if __name__ == "__main__":
    print(json.dumps({case.__name__: outcome(case) for case in CASES}))


@pytest.mark.slow
def test_include_package_imports_what_is_not_installed_too():
    """`allennlp train --include-package elmo_plugin` imports every module of the package."""
    common_util.import_module_and_submodules("elmo_plugin")


@pytest.mark.parametrize(
    "files",
    [
        None,
        {},
        {"slurm-7.out": "", "out.log": "begun"},
        {"config.json": "", "out.log": ""},
        {"config.json": '{\n    "a": 1', "meta.json": "", "vocabulary/tokens.txt": "of"},
        {".config.json.0123456789ab.part": ""},
    ],
)
def test_recover_begins_a_run_where_there_is_none(files, tmp_path, caplog):
    """As in the folder of a job that was killed in its first second."""
    folder = tmp_path / "run"
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    if files == {}:
        folder.mkdir()
    with caplog.at_level("INFO"):
        training_util.create_serialization_dir(Params({"a": 12}), folder, recover=True, force=False)
    assert folder.is_dir()
    assert f"{folder} holds no run to recover: a new one begins" in caplog.messages


@pytest.mark.parametrize(
    ("files", "error"),
    [
        (["notes.txt"], "probably gave the wrong directory"),
        (["vocabulary"], "probably gave the wrong directory"),
        (["config.json", "notes.txt"], r"config\.json is cut short.* holds notes\.txt; expected"),
        (["config.json", "model_state_e0_b2.th"], r"cut short.* holds model_state_e0_b2\.th;"),
    ],
)
def test_recover_refuses_a_folder_that_may_hold_something_else(files, error, tmp_path):
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(ConfigurationError, match=error):
        training_util.create_serialization_dir(Params({}), tmp_path, recover=True, force=False)


def test_a_config_that_cannot_be_written_leaves_the_former_one(tmp_path):
    """AllenNLP writes it at each `--recover`, and would truncate it on a full disk."""
    path = tmp_path / "config.json"
    Params({"a": 1}).to_file(str(path))
    with pytest.raises(TypeError):
        Params({"a": 1, "b": object()}).to_file(str(path))
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_distributed_run_without_a_checkpoint_makes_its_vocabulary(tmp_path):
    """AllenNLP would load it, and fail at each start where there is none."""
    config = {
        "dataset_reader": {"type": "conll2003"},
        "train_data_path": "examples/ner/train.txt",
        "data_loader": {"batch_size": 2},
        "distributed": {"cuda_devices": [-1, -1]},
    }
    begin = functools.partial(
        training_util.create_serialization_dir,
        serialization_dir=tmp_path / "run",
        recover=True,
        force=False,
    )
    begin(Params(config))
    words = tmp_path / "run" / "vocabulary" / "tokens.txt"
    whole = words.read_text()
    Params(config).to_file(str(tmp_path / "run" / "config.json"))
    words.write_text(whole[:100])  # a kill while it was written
    begin(Params(config))
    assert words.read_text() == whole
    (tmp_path / "run" / "training_state_e0_b2.th").touch()
    words.write_text("of the run\n")
    begin(Params(config))
    assert words.read_text() == "of the run\n"
