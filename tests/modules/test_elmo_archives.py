"""Archives move between AllenNLP's ELMo and ours, and ours stand alone."""

import json
import shutil

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import load_archive
from allennlp.predictors import Predictor
from tagging_task import tagger_config, with_elmo, write_task
from tiny_bilm import random_bilm, write

import elmo_plugin.plugin
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder
from tests.fresh_process import run

# Runs commands of `allennlp` one after another in one process, so that imports are paid for once.
COMMANDS = """
import json, sys
from allennlp.commands import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["allennlp", *command]
    main()
print(json.dumps({"plugin": "elmo_plugin.plugin" in sys.modules}))
"""
PLUGIN = ["--include-package", "elmo_plugin"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The task and a biLM in the current directory, where no `.allennlp_plugins` lies."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    write(tmp_path)
    return tmp_path


def config(**arguments):
    return with_elmo(tagger_config(), 12, **arguments)


def by_paths():
    return config(options_file="options.json", weight_file="weights.hdf5")


def inlined():
    return config(options=options_dict(random_bilm().options), pretrained_file="weights.hdf5")


def allennlp(folder, *commands, plugin):
    """Runs `allennlp` with or without ours, which is installed but named nowhere."""
    commands = [[*command, *(PLUGIN if plugin else [])] for command in commands]
    environment = {"HOME": str(folder), "ALLENNLP_PLUGINS": ""}
    child = run(COMMANDS, json.dumps(commands), folder=folder, **environment)
    assert child.returncode == 0, child.stderr[-3000:]
    assert json.loads(child.stdout.splitlines()[-1]) == {"plugin": plugin}


def evaluate(archive, output):
    return ["evaluate", archive, "dev.txt", "--output-file", output]


def metrics(path):
    found = json.loads(path.read_text())
    assert found["accuracy"] < 1.0  # another model would show
    return found


@pytest.mark.slow
def test_archives_move_both_ways(folder):
    (folder / "config.json").write_text(json.dumps(by_paths()))
    train = ["train", "config.json", "-s"]
    theirs, ours = "theirs/model.tar.gz", "ours/model.tar.gz"
    allennlp(folder, [*train, "theirs"], evaluate(theirs, "theirs_stock.json"), plugin=False)
    allennlp(
        folder,
        [*train, "ours"],
        evaluate(ours, "ours_plugin.json"),
        evaluate(theirs, "theirs_plugin.json"),
        plugin=True,
    )
    allennlp(folder, evaluate(ours, "ours_stock.json"), plugin=False)
    for trained in ("theirs", "ours"):
        with_plugin, without = (
            metrics(folder / f"{trained}_{where}.json") for where in ("plugin", "stock")
        )
        assert with_plugin == pytest.approx(without, abs=1e-6)


@pytest.mark.slow
def test_ours_stands_alone_by_the_command_line(folder):
    (folder / "config.json").write_text(json.dumps(inlined()))
    allennlp(
        folder,
        ["train", "config.json", "-s", "out"],
        evaluate("out/model.tar.gz", "before.json"),
        plugin=True,
    )
    (away := folder / "away").mkdir()
    shutil.move(folder / "out" / "model.tar.gz", away)
    shutil.move(folder / "dev.txt", away)
    for name in ("options.json", "weights.hdf5", "vectors.txt", "train.txt"):
        (folder / name).unlink()
    (away / "inputs.jsonl").write_text('{"sentence": "quickly walker painting"}\n')
    predict = ["predict", "model.tar.gz", "inputs.jsonl", "--predictor", "sentence_tagger"]
    allennlp(
        away,
        evaluate("model.tar.gz", "after.json"),
        [*predict, "--output-file", "out.jsonl"],
        plugin=True,
    )
    assert metrics(away / "after.json") == pytest.approx(metrics(folder / "before.json"), abs=1e-6)
    assert len(json.loads((away / "out.jsonl").read_text())["tags"]) == 3


@pytest.mark.parametrize("vocab_to_cache", [None, ["@@PADDING@@", "walker"]])
def test_ours_stands_alone(vocab_to_cache, folder):
    assert elmo_plugin.plugin
    source = inlined()
    embedder = source["model"]["text_field_embedder"]["token_embedders"]["elmo"]
    embedder["vocab_to_cache"] = vocab_to_cache
    trained = train_model(Params(source), folder / "out")
    before = evaluate_from_archive("out/model.tar.gz", "dev.txt", cuda_device=-1)
    for path in folder.iterdir():
        if path.is_file() and path.name != "dev.txt":
            path.unlink()
    after = evaluate_from_archive("out/model.tar.gz", "dev.txt", cuda_device=-1)
    assert after == pytest.approx(before, abs=1e-6)
    predictor = Predictor.from_archive(load_archive("out/model.tar.gz"), "sentence_tagger")
    loaded = predictor._model
    assert type(loaded.text_field_embedder.token_embedder_elmo) is ElmoTokenEmbedder
    for name, value in trained.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert len(predictor.predict_json({"sentence": "quickly walker"})["tags"]) == 2
