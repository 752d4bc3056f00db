"""Every file in training_config/, found by itself: its keys are known, it builds, it trains."""

import inspect
import json
import math
import pickle
import re
from copy import deepcopy
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import torch
from allennlp.commands.train import TrainModel, train_model
from allennlp.common import Params
from allennlp.common.util import prepare_environment
from allennlp.models.archival import load_archive
from allennlp.training import Trainer

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.bilm.files.options import parse_options
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from tests.commands.test_configs_command import evaluated

ROOT = Path(__file__).parents[1]
# Those of pretraining have a schema of their own: tests/training/test_pretraining_configs.py.
CONFIGS = sorted(
    path
    for path in (ROOT / "training_config").glob("*.jsonnet")
    if not path.stem.startswith("bilm")
)
TABLE1 = sorted((ROOT / "training_config" / "table1").glob("*.jsonnet"))
each_config = pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)  # the samples' paths are relative to it


def in_folder(folder: str) -> Dict[str, Any]:
    text = "".join(path.read_text() for path in TABLE1)
    names = re.findall(r"extVar\('(\w+)'\)", text) if folder.endswith("table1") else []
    return deepcopy(evaluated(ROOT, folder, **{name: f"path/of/{name}" for name in names}))


def sample(path: Path) -> Dict[str, Any]:
    return in_folder("training_config")[path.name]


def published(path: Path) -> Dict[str, Any]:
    return in_folder("training_config/table1")[path.name]


def blocks(config: Any) -> Iterator[Dict[str, Any]]:
    """Every object in a config."""
    if isinstance(config, dict):
        yield config
    for value in config.values() if isinstance(config, dict) else config:
        if isinstance(value, (dict, list)):
            yield from blocks(value)


def check_keys(config: Dict[str, Any]) -> None:
    # The trainer takes any key and drops those it does not know, without a word.
    trainer = config["trainer"]
    known = inspect.signature(Trainer.by_name(trainer.get("type", Trainer.default_implementation)))
    unknown = trainer.keys() - {"type"} - (known.parameters.keys() - {"kwargs"})
    assert not unknown, f"unknown trainer keys: {unknown}"


def build(config: Dict[str, Any], directory: Path) -> TrainModel:
    params = Params(json.loads(json.dumps(config)))
    prepare_environment(params)
    return TrainModel.from_params(
        params=params, serialization_dir=str(directory), local_rank=0, batch_weight_key=""
    )


def test_there_are_configs():
    assert {"ner", "ner_elmo", "ner_elmo_paper"} <= {path.stem for path in CONFIGS}
    assert [path.name for path in TABLE1] == [path.name for path in CONFIGS]


def code(path: Path) -> str:
    """A jsonnet file without its comments and strings' contents, imports kept."""
    text = re.sub(r"(?m)(^|\s)//.*$", "", path.read_text())
    return re.sub(r"(import )?'[^']*'", lambda match: match[0] if match[1] else "''", text)


def imported(path: Path) -> List[Path]:
    return [path.parent / name for name in re.findall(r"import '([^']*)'", code(path))]


def is_plain(path: Path) -> bool:
    return not re.search(r"\b(function|if|for|assert)\b|\w\(.*\) *=", code(path))


@pytest.mark.parametrize("path", TABLE1, ids=[path.stem for path in TABLE1])
def test_the_published_setup_reads_from_top_to_bottom(path):
    assert is_plain(path)
    # A config with ELMo says what it adds to the one without; nothing else is looked up elsewhere.
    folders = {name.resolve().parent for name in imported(path)}
    assert folders <= {path.parent}
    assert {name.suffix for name in imported(path)} <= {".jsonnet", ".json"}


@pytest.mark.parametrize(
    "text", ["{ a: if b then 1 else 2 }", "function(x) x", "local f(x) = x;", "[x for x in y]"]
)
def test_a_branch_or_function_is_seen(text, tmp_path):
    (tmp_path / "config.jsonnet").write_text(text)
    assert not is_plain(tmp_path / "config.jsonnet")
    (tmp_path / "config.jsonnet").write_text(f"// {text}\n{{ a: 'if' }}")
    assert is_plain(tmp_path / "config.jsonnet")


@each_config
def test_the_sample_setup_is_an_overlay_on_the_published_one(path):
    reached, queue = set(), [path.resolve()]
    while queue:
        file = queue.pop()
        if file not in reached:
            reached.add(file)
            queue += [name.resolve() for name in imported(file) if name.suffix != ".json"]
    assert is_plain(path)
    assert ROOT / "training_config" / "table1" / path.name in reached


def test_results_stand_on_the_published_setups_and_not_on_the_sample():
    sources = sorted((ROOT / "results").rglob("*sonnet"))
    assert sources
    for path in sources:
        for name in imported(path):
            if "training_config" in name.parts:
                assert name.resolve().parent.name in ("table1", "pretraining"), (
                    f"{path} imports {name}"
                )
                assert name.exists()


@each_config
def test_both_setups_shuffle_training_and_choose_the_model_on_the_validation_split(path):
    for config in (sample(path), published(path)):
        check_keys(config)
        loader = config["data_loader"]
        assert loader.get("shuffle") or loader.get("batch_sampler", {}).get("type") == "bucket"
        assert config["validation_data_path"] != config.get("test_data_path")
        assert config["train_data_path"] != config["validation_data_path"]


def test_a_stale_trainer_key_is_seen():
    config = {"trainer": {"num_serialized_models_to_keep": 3, "num_epochs": 1}}
    with pytest.raises(AssertionError, match="num_serialized_models_to_keep"):
        check_keys(config)


@each_config
def test_sample_files_are_there_and_need_no_network(path):
    config = sample(path)
    for key in ("train_data_path", "validation_data_path", "test_data_path"):
        assert key not in config or (ROOT / config[key]).exists()
    assert "https://" not in json.dumps(config)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.stem, marks=[pytest.mark.slow] * path.stem.endswith(("_paper", "_5.5B"))
        )
        for path in CONFIGS
    ],
)
def test_sample_builds_and_gives_a_loss(path, tmp_path):
    trainer = build(sample(path), tmp_path).trainer
    batch = next(iter(trainer.data_loader))
    loss = trainer.batch_outputs(batch, for_training=True)["loss"]
    assert math.isfinite(loss.item())
    loss.backward()
    metrics = trainer.model.get_metrics(reset=True)
    assert {name for _, name in trainer._metric_tracker.tracked_metrics} <= {*metrics, "loss"}
    pickle.dumps(trainer.model)


def word_vectors(folder: Path, dim: int) -> str:
    """A file of a few."""
    path = folder / f"vectors_{dim}.txt"
    path.write_text("".join(f"{w} {' '.join(['0.5'] * dim)}\n" for w in ("the", "a")))
    return str(path)


def with_small_files(config: Dict[str, Any], plain: Dict[str, Any], tmp_path: Path) -> None:
    """Puts sample data, a few word vectors and small biLMs where a published config names files."""
    for key in ("train_data_path", "validation_data_path", "test_data_path"):
        if key in config:
            config[key] = plain[key]
    if "genres" in config["model"]:  # the sample's are not OntoNotes'
        config["model"]["genres"] = plain["model"]["genres"]
    for block in blocks(config):
        if "options" in block and "pretrained_file" in block:
            options = json.loads(json.dumps(block["options"]))
            # The width that a task model sees stays; what is inside the biLM shrinks.
            options["lstm"]["dim"] = 8
            options["char_cnn"].update(filters=[[1, 8]], n_highway=1)
            weights = tmp_path / f"weights_{options['lstm']['projection_dim']}.hdf5"
            save_weights(BiLm(parse_options(options)), weights)
            block.update(options=options, pretrained_file=str(weights))
        elif "embedding_dim" in block and block.get("pretrained_file"):
            block["pretrained_file"] = word_vectors(tmp_path, block["embedding_dim"])
        elif "pretrained_files" in block:
            block["pretrained_files"] = {
                namespace: word_vectors(tmp_path, 2) for namespace in block["pretrained_files"]
            }


@pytest.mark.slow
@each_config
def test_published_classes_and_dimensions_fit(path, tmp_path):
    config = published(path)
    with_small_files(config, sample(path), tmp_path)
    trainer = build(config, tmp_path / "run").trainer
    batch = next(iter(trainer.data_loader))
    with torch.no_grad():
        assert math.isfinite(trainer.batch_outputs(batch, for_training=True)["loss"].item())


@pytest.mark.slow
@each_config
def test_sample_trains_an_epoch_and_its_archive_evaluates_and_predicts(path, tmp_path):
    config = sample(path)
    config["trainer"]["num_epochs"] = 1
    model = train_model(Params(json.loads(json.dumps(config))), str(tmp_path / "run"))
    pickle.dumps(model)
    archive = load_archive(tmp_path / "run" / "model.tar.gz")
    for name, parameter in archive.model.state_dict().items():
        torch.testing.assert_close(parameter, model.state_dict()[name])
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert math.isfinite(metrics["validation_loss"])
    instances: List[Any] = list(
        archive.validation_dataset_reader.read(config["validation_data_path"])
    )
    assert archive.model.forward_on_instance(instances[0])
