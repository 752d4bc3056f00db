"""`configs`: what it writes runs by itself, and takes nothing away."""

import json
from functools import cache
from pathlib import Path

import _jsonnet
import pytest

from elmo_plugin.__main__ import main

ROOT = Path(__file__).parents[2]


@cache
def evaluated(root, folder="training_config", **variables):
    """The offline configs by their names, in one evaluation: each parses jsonnet's own library."""
    paths = sorted((root / folder).glob("*.jsonnet"))
    imports = ", ".join(
        f"{json.dumps(path.name)}: import {json.dumps(str(path))}" for path in paths
    )
    snippet = f"{{{imports}}}"
    return json.loads(_jsonnet.evaluate_snippet("configs", snippet, ext_vars=variables))


@pytest.mark.slow
def test_every_config_is_written_and_evaluates_to_the_same(tmp_path, capsys, monkeypatch):
    out = tmp_path / "new" / "elmo"
    main(["configs", str(out)])
    assert f"files in {out}" in capsys.readouterr().out
    monkeypatch.chdir(out)
    configs = evaluated(out)
    assert len(configs) > 10
    assert configs == evaluated(ROOT)
    for copied in configs.values():
        for key in ("train_data_path", "validation_data_path", "test_data_path"):
            assert key not in copied or Path(copied[key]).exists()
    assert Path("requirements.txt").read_text() == (ROOT / "requirements.txt").read_text()
    assert not list(out.rglob("*.py"))


def test_a_file_that_differs_is_kept_without_force(tmp_path, capsys, error_line):
    folder = tmp_path / "my configs"
    changed = folder / "training_config" / "ner.jsonnet"
    changed.parent.mkdir(parents=True)
    changed.write_text("{}")
    assert f"{changed} exists and differs" in error_line("configs", folder)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [changed]
    main(["configs", str(folder), "--force"])
    assert changed.read_text() == (ROOT / "training_config" / "ner.jsonnet").read_text()
    main(["configs", str(folder)])  # the same again is no error
    assert f"  cd '{folder}' && allennlp train " in capsys.readouterr().out
