"""Every pretraining config in training_config/, found by itself: it is valid, builds and trains."""

import json
import math
import re
from pathlib import Path

import pytest

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.pretraining import config as configs
from elmo_plugin.bilm.pretraining.language_model import make_language_model
from elmo_plugin.bilm.pretraining.loop import Pretraining
from elmo_plugin.commands.pretrain import read_config

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "training_config"
SAMPLES = sorted(FOLDER.glob("bilm*.jsonnet"))
PUBLISHED = sorted((FOLDER / "pretraining").glob("*.jsonnet"))
each_sample = pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)  # the samples' paths are relative to it


def test_each_published_config_has_a_sample_overlay():
    assert [path.name for path in PUBLISHED] == [path.name for path in SAMPLES] != []
    for path in SAMPLES:
        assert f"(import 'pretraining/{path.name}')" in path.read_text()


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_configs_have_known_keys_and_shuffle(path, monkeypatch):
    for variable in re.findall(r"extVar\('(\w+)'\)", "".join(p.read_text() for p in PUBLISHED)):
        monkeypatch.setenv(variable, "examples/text/train.txt")
    config = read_config(str(path))
    configs.check_config(config, path.name)
    configs.make_settings(config)
    configs.make_model_arguments(config)
    assert configs.make_text(config).shuffle
    assert not configs.make_text(config, heldout=True).shuffle


@pytest.mark.parametrize(
    ("loader", "settings", "message"),
    [
        ("data_loader", {"paths": ["other.txt"]}, "data_loader: the key 'paths' is unknown"),
        (
            "validation_data_loader",
            {"paths": ["other.txt"]},
            "n_data_loader: the key 'paths' is unknown",
        ),
        ("validation_data_loader", {"batches_per_epoch": 1}, r"has \['batches_per_ep"),
    ],
)
def test_a_loader_chooses_no_text(loader, settings, message):
    path = "examples/text/heldout.txt"
    config = {"train_data_path": path, "validation_data_path": path, "data_loader": {}}
    config[loader] = {"batch_size": 4, **settings}
    with pytest.raises(ValueError, match=message):
        configs.make_text(config, heldout=loader != "data_loader")


@each_sample
def test_samples_need_no_network_and_make_a_step(path, tmp_path):
    config = read_config(str(path))
    assert "https://" not in json.dumps(config)
    configs.check_config(config, path.name)
    text = configs.make_text(config)
    model = make_language_model(
        configs.make_vocabulary(config), **configs.make_model_arguments(config)
    )
    words = configs.make_vocabulary(config)
    run = Pretraining(model, words, text, None, tmp_path, configs.make_settings(config))
    losses = []

    def stop(step):
        losses.append(step.loss)
        run.stop.number = 15

    run.on_step = stop
    with pytest.raises(Exception, match="stopped, and saved"):
        run.run()
    assert len(losses) == 1
    assert math.isfinite(losses[0])


@pytest.mark.slow
@each_sample
def test_samples_train_an_epoch(path, tmp_path):
    out = tmp_path / "out"
    main(["pretrain", str(path), "-s", str(out), "-o", '{"trainer.num_epochs": 1}'])
    assert math.isfinite(json.loads((out / "metrics.json").read_text())["validation_loss"])
