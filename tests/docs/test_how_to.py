"""docs/how_to.md: every command and snippet runs, and says what the page says it does."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how_to.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    section: str
    language: str
    code: str
    output: Optional[str]


def blocks():
    """What the page has to run, in order."""
    found = []
    for section in re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        found += [Block(title, *match.groups()) for match in BLOCK.finditer(section)]
    return found


def needs_training(block):
    return "allennlp train" in block.code or "ner/model.tar.gz" in block.code


def run_page(folder, chosen):
    """Runs blocks as one session, in a folder that looks like the repository's."""
    for name in (".allennlp_plugins", "examples", "training_config", "elmo_plugin"):
        (folder / name).symlink_to(ROOT / name)
    # The compiled kernels are those of the other tests.
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": caches}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    names = {}
    count = 0
    for block in chosen:
        if block.language == "bash":
            child = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.code],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert child.returncode == 0, block.code + child.stderr
            output = child.stdout
        elif block.language == "python":
            printed = io.StringIO()
            with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
                exec(compile(block.code, str(PAGE), "exec"), names)
            output = printed.getvalue()
        else:
            continue
        count += 1
        if block.output is not None:
            assert output == block.output, block.code
    return count


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    chosen = [block for block in blocks() if not needs_training(block)]
    assert run_page(tmp_path, chosen) == len(
        [block for block in chosen if block.language in ("bash", "python")]
    )


@pytest.mark.slow
def test_the_commands_that_train_run(tmp_path):
    chosen = [block for block in blocks() if needs_training(block)]
    assert run_page(tmp_path, chosen) == 3
    assert (tmp_path / "layer_weights.svg").read_text().startswith("<?xml")
    assert "Holm" in (tmp_path / "entities.html").read_text()


def test_no_block_is_passed_over():
    found = blocks()
    assert PAGE.read_text("utf-8").count("```") == 2 * (
        len(found) + sum(block.output is not None for block in found)
    )
    assert {block.language for block in found} == {"bash", "python", "jsonnet"}


def test_the_jsonnet_in_the_page_is_what_the_config_has():
    import json

    import _jsonnet

    def parsed(code):
        return json.loads(_jsonnet.evaluate_snippet("page", code))

    first, second = (block.code for block in blocks() if block.language == "jsonnet")
    base = "{model: {encoder: {input_size: 1}}} + "
    page = parsed(base + "{" + first + "}")
    config = json.loads(_jsonnet.evaluate_file(str(ROOT / "training_config" / "ner_elmo.jsonnet")))
    options = json.loads((ROOT / "elmo_plugin" / "pretrained" / "options.json").read_text())
    assert page["model"]["encoder"]["input_size"] == 1 + 2 * options["lstm"]["projection_dim"]
    indexers = page["dataset_reader"]["token_indexers"]
    assert indexers.items() <= config["dataset_reader"]["token_indexers"].items()
    ours = page["model"]["text_field_embedder"]["token_embedders"]["elmo"]
    theirs = config["model"]["text_field_embedder"]["token_embedders"]["elmo"]
    assert (ours["type"], ours["dropout"]) == (theirs["type"], theirs["dropout"])
    assert ours["options_file"] == theirs["pretrained_file"]
    assert parsed("{" + second + "}")["regularizer"]["regexes"][0][0] == "scalar_parameters"
