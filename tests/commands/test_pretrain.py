"""`elmo-plugin pretrain`: what it reads, what it refuses, and that it needs no AllenNLP."""

import json
import re
from pathlib import Path

import pytest
import torch

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.pretraining.config import differences
from elmo_plugin.bilm.pretraining.loop import Pretraining
from elmo_plugin.commands.pretrain import read_config
from tests.fresh_process import python
from tests.sample_pretraining import SMALL, sample

EXPORTED = {"options.json", "weights.hdf5", "vocabulary.txt", "softmax.hdf5", "card.json"}


@pytest.fixture
def config():
    """Three steps."""
    loaders = {"data_loader.num_steps": 5, "validation_data_loader.batch_size": 32}
    steps = {"data_loader.batches_per_epoch": 3, "trainer.num_epochs": 1}
    return sample(**SMALL, **loaders, **steps)


@pytest.fixture
def pretrain(config, tmp_path, capsys):
    def pretrain(*arguments, folder="out", **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**config, **changes}))
        main(["pretrain", str(path), "-s", str(tmp_path / folder), *arguments])
        return tmp_path / folder

    return pretrain


def error_of(pretrain, capsys, *arguments, **changes):
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        pretrain(*arguments, **changes)
    assert end.value.code == 1
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("number", [99, -5])
def test_a_gpu_that_is_not_there_is_no_cpu(pretrain, config, capsys, number):
    error = error_of(pretrain, capsys, trainer={**config["trainer"], "cuda_device": number})
    assert f"the process needs GPU {number}, expected one of this machine's" in error


def test_a_run_leaves_what_elmo_needs_and_is_not_written_over(pretrain, capsys, tmp_path):
    out = pretrain()
    assert {path.name for path in out.iterdir()} >= {*EXPORTED, "metrics.json", "best.th"}
    best = torch.load(out / "best.th", weights_only=True)
    error = error_of(pretrain, capsys)
    assert re.search(
        r"out is not empty: it has best\.th, card\.json, .* \.\.\.; --recover resu", error
    )
    pretrain("--force", "-o", '{"pytorch_seed": 7}')
    other, former = (
        torch.load(folder / "best.th", weights_only=True)
        for folder in (out, tmp_path / "out.former")
    )
    assert any(not torch.equal(other[name], tensor) for name, tensor in best.items())
    assert all(torch.equal(former[name], tensor) for name, tensor in best.items())
    before = snapshot(tmp_path)
    assert "out.former, which is there already" in error_of(pretrain, capsys, "--force")
    assert snapshot(tmp_path) == before


def test_a_run_may_be_made_longer_but_not_another(pretrain, capsys, config):
    pretrain()
    out = pretrain("--recover", "-o", '{"trainer.num_epochs": 2}')
    assert json.loads((out / "metrics.json").read_text())["epoch"] == 1
    assert json.loads((out / "config.json").read_text())["trainer"]["num_epochs"] == 2
    error = error_of(pretrain, capsys, "--recover", "-o", '{"model.dropout": 0.3}')
    assert re.search(r"config\.json is of another run: model\.dropout differ", error)
    (out / "best.th").unlink()
    error = error_of(pretrain, capsys, "--recover", "-o", '{"trainer.num_epochs": 3}')
    assert re.search(r"there is no .*best\.th, the weights of the best epoch", error)
    assert not (out / "checkpoint_e3_b0.th").exists()


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("flag", [[], ["--force"], ["--recover"]])
def test_no_file_of_the_users_is_deleted(config, tmp_path, capsys, flag, has_run):
    """A project folder that holds the config and the text, given as the run's folder."""
    project = tmp_path / "project"
    (project / "vocabulary").mkdir(parents=True)
    for key in ("train_data_path", "validation_data_path"):
        name = project / f"{key}.txt"
        name.write_bytes(Path(config[key]).read_bytes())
        config[key] = str(name)
    (project / "notes.md").write_text("mine")
    path = project / "config.json"
    path.write_text(json.dumps(config))
    if has_run and flag != ["--recover"]:
        (project / "vocabulary" / "words.txt").write_text("mine")
        (project / "best.th").write_text("mine")
    before = snapshot(project)
    with pytest.raises(SystemExit):
        main(["pretrain", str(path), "-s", str(project), *flag])
    error = capsys.readouterr().err
    assert re.search(r"project holds .*, which this run reads; give the run a folder of its", error)
    assert "--force" not in error
    assert snapshot(project) == before


@pytest.mark.parametrize("flag", [[], ["--recover"]])
@pytest.mark.parametrize("name", ["notes.md", "empty/", "weights.hdf5", "config.json"])
def test_a_folder_with_other_files_is_refused(pretrain, capsys, tmp_path, flag, name):
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    if name.endswith("/"):
        path.mkdir()
    else:
        path.write_text("mine")
    before = snapshot(tmp_path / "out")
    assert f"out is not empty: it has {name.strip('/')};" in error_of(pretrain, capsys, *flag)
    assert snapshot(tmp_path / "out") == before


def test_force_leaves_no_file_of_the_former_run(pretrain, tmp_path):
    out = pretrain("-o", '{"trainer.num_epochs": 2}')
    (out / "log").mkdir()
    (out / "log" / "events.out.tfevents.1").touch()
    before = {path.relative_to(out) for path in out.rglob("*")}
    pretrain("--force")
    former = tmp_path / "out.former"
    assert {path.relative_to(former) for path in former.rglob("*")} == before
    after = {path.name for path in out.rglob("*")}
    assert not {"checkpoint_e2_b0.th", "metrics_epoch_1.json", "events.out.tfevents.1"} & after


def test_recover_and_force_exclude_each_other(pretrain, capsys):
    assert "expected one of them" in error_of(pretrain, capsys, "--recover", "--force")


def test_a_folder_in_use_is_refused_whatever_the_flag(pretrain, capsys, tmp_path, monkeypatch):
    """As long as a run lasts, which ends with what it has written."""
    end, seen = Pretraining._finish, []

    def end_beside_others(run):
        monkeypatch.undo()
        before = snapshot(tmp_path / "out")
        for flag in ([], ["--force"], ["--recover"]):
            seen.append(error_of(pretrain, capsys, *flag))
        assert snapshot(tmp_path / "out") == before
        end(run)

    monkeypatch.setattr(Pretraining, "_finish", end_beside_others)
    assert (pretrain() / "weights.hdf5").exists()
    assert all("out is in use by another process" in error for error in seen)
    assert len(seen) == 3


def test_a_start_that_failed_does_not_refuse_the_corrected_command(pretrain, capsys, config):
    bad = {"data_loader": {**config["data_loader"], "batch_size": 10**6, "num_tokens": 5}}
    del bad["data_loader"]["batches_per_epoch"]
    assert "expected at least the" in error_of(pretrain, capsys, **bad)
    missing = {"train_data_path": "none.txt"}
    assert "there is no text file" in error_of(pretrain, capsys, **missing)
    assert (pretrain() / "weights.hdf5").exists()


@pytest.mark.parametrize("name", [None, "slurm-7.out", "vocabulary/.words.txt.0123456789ab.part"])
def test_recover_with_nothing_to_recover_begins(pretrain, tmp_path, name):
    """As in the folder of a job that was killed in its first second."""
    if name:
        (tmp_path / "out" / name).parent.mkdir(parents=True)
        (tmp_path / "out" / name).touch()
    assert (pretrain("--recover") / "weights.hdf5").exists()


def test_what_may_differ():
    one = {"trainer": {"num_epochs": 1, "grad_norm": 1.0}, "model": {"softmax": {}}}
    other = {"trainer": {"num_epochs": 2, "grad_norm": 2.0}, "model": {"softmax": {"sparse": True}}}
    assert differences(one, other) == ["model.softmax", "model.softmax.sparse", "trainer.grad_norm"]
    assert differences(one, one) == []
    kinds = [{"trainer": {"type": kind, "optimizer": {"type": kind}}} for kind in ("a", "b")]
    assert differences(*kinds) == ["trainer.optimizer.type"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterator": {}}, "config.json: the key 'iterator' is unknown, expected one of"),
        ({"model": {"type": "crf_tagger"}}, "model.type is 'crf_tagger', expected 'bilm_language_"),
        ({"trainer": {"optimizer": {"type": "lamb"}}}, "optimizer.type is 'lamb', expected one of"),
        ({"data_loader": {"batch": 3}}, "data_loader: the key 'batch' is unknown; the key 'batch_"),
        ({"vocabulary": {"min": 3}}, "vocabulary: the key 'min' is unknown, expected one of"),
        (
            {"model": {"options": {}, "dropuot": 1}},
            "model: the key 'dropuot' is unknown, expected one of",
        ),
        ({"model": {}}, "model: the key 'options' is missing"),
        ({"model": {"options": {}, "softmax": {"samples": 1}}}, "model.softmax: the key 'samples'"),
        ({"vocabulary": {"min_count": "3"}}, "vocabulary: min_count is '3', expected int"),
        ({"model": {"options": {}, "dropout": "0.1"}}, "model: dropout is '0.1', expected float"),
        (
            {"model": {"options": {}, "softmax": {"num_samples": 1.5}}},
            r"model.softmax: num_samples is 1.5, expected int \| None",
        ),
        ({"pytorch_seed": "7"}, "pytorch_seed is '7', expected int"),
        ({"pytorch_seed": 2**70}, "pytorch_seed is 1180591620717411303424, expected an int of 64"),
        ({"vocabulary": 3}, r"config.json: vocabulary is 3, expected dict\[str"),
        *(
            (
                {"vocabulary": {"vocabulary_file": "words.txt", key: 2}},
                f"vocabulary: vocabulary_file is given with {{'{key}': 2}}, expected one of them",
            )
            for key in ("min_count", "max_size")
        ),
        ({"data_loader": {"batch_size": 4, "num_characters": 20}}, "num_characters is 20, expecte"),
        ({"train_data_path": "none/*.txt"}, r"there is no text file none/\*.txt"),
    ],
)
def test_what_a_config_says_wrong_is_one_line(pretrain, capsys, changes, message):
    error = error_of(pretrain, capsys, **changes)
    assert error.startswith("error: ")
    assert re.search(message, error)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("{", r"error: --overrides is '\{', expected JSON"),
        ("[1]", r"--overrides is \[1\], expected an object"),
        ('{"trainer.num_epochs.x": 1}', "--overrides has 'trainer.num_epochs.x', expected keys of"),
    ],
)
def test_overrides_that_are_none(pretrain, capsys, overrides, message):
    assert re.search(message, error_of(pretrain, capsys, "-o", overrides))


def test_overrides_say_what_they_drop(capsys, tmp_path):
    (tmp_path / "small.json").write_text('{"model": {"dropout": 1, "softmax": {}}}')
    note = "note: --overrides replaces all of model, without ['dropout']; a key with dots changes"
    for overrides, said in (('{"model": {"softmax": {}}}', note), ('{"model.softmax": {}}', "")):
        read_config(str(tmp_path / "small.json"), overrides)
        assert capsys.readouterr().err[: len(note)] == said


def test_what_cannot_begin_replaces_no_run(pretrain, capsys, tmp_path):
    out = pretrain()
    before = (out / "weights.hdf5").read_bytes()
    error = error_of(pretrain, capsys, "--force", "-o", '{"model.dropuot": 0.2}')
    assert "the key 'dropuot' is unknown" in error
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\n")
    bad = {"train_data_path": str(tmp_path / "bad.txt")}
    assert "bad.txt" in error_of(pretrain, capsys, "--force", **bad)
    for overrides, message in (
        ({"trainer.optimizer.type": "adamm"}, "adamm"),
        ({"model.softmax.num_samples": 10**6}, "expected"),
        ({"model.pretrained_file": str(tmp_path / "none.hdf5")}, "none.hdf5"),
        ({"model.dropout": 1.5}, "dropout is 1.5, expected at least 0 and below 1"),
        ({"data_loader.num_characters": 20}, "num_characters is 20, expected the biLM's"),
        ({"model.options": str(out), "model.pretrained_file": str(out)}, "which this run reads"),
    ):
        assert message in error_of(pretrain, capsys, "--force", "-o", json.dumps(overrides))
    assert (out / "weights.hdf5").read_bytes() == before


def test_a_config_that_is_not_there_or_not_json(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match=r"there is no config .*none\.json"):
        read_config(str(tmp_path / "none.json"))
    (tmp_path / "bad.jsonnet").write_text("{ a: }")
    with pytest.raises(ValueError, match=r"bad\.jsonnet: STATIC ERROR"):
        read_config(str(tmp_path / "bad.jsonnet"))


def test_jsonnet_sees_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TEXT", "some/text.txt")
    path = tmp_path / "config.jsonnet"
    path.write_text(
        "{ train_data_path: std.extVar('TEXT'), model: {}, data_loader: {}, trainer: {} }"
    )
    config = read_config(str(path), '{"model.softmax.num_samples": 5}')
    assert config["train_data_path"] == "some/text.txt"
    assert config["model"] == {"softmax": {"num_samples": 5}}


# Python takes a module for missing if `None` stands for it.
HIDDEN = """
import sys
sys.modules.update(dict.fromkeys(("allennlp", "spacy", "transformers", "_jsonnet")))
from elmo_plugin.__main__ import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_it_needs_no_allennlp_and_for_json_no_jsonnet(config, tmp_path, repository):
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = "-c", HIDDEN, "pretrain"
    path, jsonnet = tmp_path / "config.json", repository / "training_config/bilm.jsonnet"
    python(*command, path, "-s", tmp_path / "out", folder=repository)
    assert (tmp_path / "out" / "weights.hdf5").exists()
    child = python(*command, jsonnet, "-s", tmp_path / "other", folder=repository, status=1)
    assert "pip install 'elmo_plugin[jsonnet]', or give the config as JSON" in child.stderr
