"""Archives with a biLM load anywhere, move between AllenNLP's ELMo and ours, and only load."""

import json
import logging
import shutil
import tarfile

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import load_archive
from allennlp.predictors import Predictor

import elmo_plugin.plugin
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.modules import archived_bilm
from elmo_plugin.modules.archived_bilm import OPTIONS_FILE, write_options
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder
from tests.fresh_process import run
from tests.tagging_task import tagger_config, with_elmo, write_task
from tests.tiny_bilm import random_bilm, write

OPTIONS, WEIGHTS = "bilm/options.json", "bilm/weights.hdf5"
BY_PATHS = {"options_file": OPTIONS, "weight_file": WEIGHTS}
INLINED = {"options": options_dict(random_bilm().options), "pretrained_file": WEIGHTS}
# Runs commands of `allennlp` one after another in one process, so that imports are paid for once.
COMMANDS = """
import json, sys
from allennlp.commands import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["allennlp", *command]
    main()
print(json.dumps({"plugin": "elmo_plugin.plugin" in sys.modules}))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The task and a biLM in the current directory, where no `.allennlp_plugins` lies."""
    assert elmo_plugin.plugin
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    (tmp_path / "bilm").mkdir()
    write(tmp_path / "bilm")
    return tmp_path


def train(folder, **arguments):
    train_model(Params(with_elmo(tagger_config(), 12, **arguments)), folder / "out")
    return "out/model.tar.gz"


def evaluate(archive):
    return evaluate_from_archive(archive, "dev.txt", cuda_device=-1)


@pytest.mark.parametrize(
    "arguments",
    [BY_PATHS, INLINED, {**INLINED, "vocab_to_cache": ["@@PADDING@@", "walker"]}],
    ids=["by paths", "inlined", "with a cache of words"],
)
def test_an_archive_stands_alone(folder, arguments):
    archive = train(folder, **arguments)
    before, trained = evaluate(archive), load_archive(archive).model.state_dict()
    # Another biLM at the same path is not taken.
    write(folder / "bilm", random_bilm(cell_clip=0.1, seed=2))
    assert evaluate(archive) == before
    shutil.rmtree("bilm")
    for name in ("vectors.txt", "train.txt"):
        (folder / name).unlink()
    assert evaluate(archive) == before
    predictor = Predictor.from_archive(load_archive(archive), "sentence_tagger")
    loaded = predictor._model
    assert type(loaded.text_field_embedder.token_embedder_elmo) is ElmoTokenEmbedder
    for name, value in loaded.state_dict().items():
        assert torch.equal(trained[name], value), name
    assert len(predictor.predict_json({"sentence": "quickly walker"})["tags"]) == 2
    with tarfile.open(archive) as file:
        assert (OPTIONS_FILE in file.getnames()) == (arguments is BY_PATHS)


def allennlp(folder, *commands, plugin):
    """Runs `allennlp` with or without ours, which is installed but named nowhere."""
    named = ["--include-package", "elmo_plugin"] if plugin else []
    commands = [[*command, *named] for command in commands]
    environment = {"HOME": str(folder), "ALLENNLP_PLUGINS": ""}
    child = run(COMMANDS, json.dumps(commands), folder=folder, **environment)
    assert child.returncode == 0, child.stderr[-3000:]
    assert json.loads(child.stdout.splitlines()[-1]) == {"plugin": plugin}


def evaluating(archive, output):
    return ["evaluate", archive, "dev.txt", "--output-file", output]


def metrics(path):
    found = json.loads(path.read_text())
    assert found["accuracy"] < 1.0  # another model would show
    return found


@pytest.mark.slow
def test_archives_move_both_ways(folder):
    (folder / "config.json").write_text(json.dumps(with_elmo(tagger_config(), 12, **BY_PATHS)))
    train = ["train", "config.json", "-s"]
    theirs, ours = "theirs/model.tar.gz", "ours/model.tar.gz"
    allennlp(folder, [*train, "theirs"], evaluating(theirs, "theirs_stock.json"), plugin=False)
    allennlp(
        folder,
        [*train, "ours"],
        evaluating(ours, "ours_plugin.json"),
        evaluating(theirs, "theirs_plugin.json"),
        plugin=True,
    )
    allennlp(folder, evaluating(ours, "ours_stock.json"), plugin=False)
    for trained in ("theirs", "ours"):
        with_plugin, without = (
            metrics(folder / f"{trained}_{where}.json") for where in ("plugin", "stock")
        )
        assert with_plugin == pytest.approx(without, abs=1e-6)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ({**BY_PATHS, "options": None}, (OPTIONS, WEIGHTS)),
        ({"pretrained_file": "embedded"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_every_way_to_name_a_bilm_is_archived(folder, monkeypatch, model, named):
    monkeypatch.setattr(archived_bilm, "DEFAULT", OPTIONS)  # no download
    for config in (
        {"model": {"elmo": model}},
        {"model": {"embedder": {"type": "elmo_token_embedder", **model}}},
    ):
        (folder / "config.json").write_text(json.dumps(config))
        assert write_options(folder) == [OPTIONS_FILE]
        (entry,) = json.loads((folder / OPTIONS_FILE).read_text())
        assert (entry["options_file"], entry["weight_file"]) == named
        embedded = "pretrained_file" in model
        assert entry["options"]["lstm"]["projection_dim"] == (256 if embedded else 6)


def test_one_made_without_options_says_how_to_mend_it(folder):
    archive = train(folder, **BY_PATHS)
    with tarfile.open(archive) as file:
        file.extractall("files", filter="data")
    (folder / "files" / OPTIONS_FILE).unlink()
    content = (folder / OPTIONS).read_text()
    shutil.rmtree("bilm")
    with pytest.raises(ConfigurationError, match=r"bring the options\.json .*--overrides"):
        load_archive("files")
    (folder / "mine.json").write_text(content)
    key = "model.text_field_embedder.token_embedders.elmo.options_file"
    model = load_archive("files", overrides={key: "mine.json"}).model
    trained = load_archive(archive).model.state_dict()
    assert all(torch.equal(trained[name], value) for name, value in model.state_dict().items())


def test_the_cache_is_the_runs_and_not_the_archives(folder):
    archive = train(folder, cache="vectors", state="reset", **BY_PATHS)
    (folder / "vectors").rename(folder / "elsewhere")
    evaluate(archive)
    assert not (folder / "vectors").exists()


def test_random_weights_are_said_aloud_but_not_of_an_archive(folder, caplog):
    archive = train(folder, **INLINED)
    # Training sets the root's handlers anew.
    logger = logging.getLogger("elmo_plugin.bilm.use.elmo")
    logger.addHandler(caplog.handler)
    load_archive(archive)
    assert "RANDOM" not in caplog.text
    Elmo(options=INLINED["options"])
    logger.removeHandler(caplog.handler)
    assert "The biLM has RANDOM weights" in caplog.text
