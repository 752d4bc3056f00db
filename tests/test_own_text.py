import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import h5py
import pytest

from tests.fresh_process import commands_in

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "own_text.md").read_text(encoding="utf-8")
# One epoch each, on whole sentences, is enough to see that the chain holds.
SHORTER = {
    '-o \'{"train_data_path"': '-o \'{"trainer.num_epochs": 1, "train_data_path"',
    "train own/sentiment.jsonnet": (
        "train own/sentiment.jsonnet "
        """-o '{"trainer.num_epochs": 1, "dataset_reader.use_subtrees": false}'"""
    ),
}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.slow
def test_the_page_leads_from_prose_to_a_classifier(tmp_path):
    for name in ("training_config", "examples", "elmo_plugin"):
        (tmp_path / name).symlink_to(ROOT / name)
    prose = tmp_path / "own" / "prose"
    prose.mkdir(parents=True)
    for split, source in (("train_1", "train"), ("heldout", "dev")):
        trees = (ROOT / "examples" / "sst" / f"{source}.txt").read_text(encoding="utf-8")
        sentences = [" ".join(re.findall(r"[^\s()]+(?=\))", tree)) for tree in trees.splitlines()]
        text = " ".join(f"{sentence[:-2].capitalize()}." for sentence in sentences)
        (prose / f"{split}.txt").write_text(text, encoding="utf-8")
    (configuration,) = blocks("jsonnet")
    (tmp_path / "own" / "sentiment.jsonnet").write_text(configuration, encoding="utf-8")
    prepare, pretrain, train, use, labels = blocks("sh")
    for before, after in SHORTER.items():
        assert before in pretrain + train
        pretrain, train = (step.replace(before, after) for step in (pretrain, train))
    path, pipes = commands_in(tmp_path / "bin")
    environment = {**os.environ, "PATH": path}

    def run(commands):
        done = subprocess.run(
            ["sh", "-ec", commands],
            cwd=tmp_path,
            env=environment,
            pass_fds=pipes,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(prepare)
    assert len((tmp_path / "own" / "train.txt").read_text(encoding="utf-8").splitlines()) == 400
    run(pretrain)
    with h5py.File(tmp_path / "own" / "bilm" / "weights.hdf5") as weights:
        assert "char_embed" in weights
    run(train)
    shutil.rmtree(tmp_path / "own" / "bilm")  # the archive stands alone
    run(use)
    metrics = json.loads((tmp_path / "own" / "metrics.json").read_text())
    assert 0 < metrics["accuracy"] <= metrics["accuracy3"] <= 1
    prediction = json.loads((tmp_path / "own" / "labels.jsonl").read_text())
    assert prediction["label"] in "01234"
    assert sum(prediction["class_probabilities"]) == pytest.approx(1, abs=1e-4)
    best = max(range(5), key=prediction["class_probabilities"].__getitem__)
    assert run(labels).split()[best] == prediction["label"]
