"""The throughput table: what it takes from the recipe, where figures land, and the command."""

import json
import sys

import pytest
import torch

from benchmarks import throughput, training_cell
from elmo_plugin.bilm.files.options import options_dict, parse_options
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary

TINY = {
    "options": options_dict(ElmoOptions(8, 16, 2, 4, ((1, 4), (2, 6)), 1)),
    "num_samples": 20,
    "dropout": 0.1,
    "grad_norm": 1.0,
    "adamw": {"lr": 0.01, "weight_decay": 0.01, "fused": True},
}


def cell(dtype, batch_size, num_steps, seconds):
    times = {str(n): {"seconds": one} for n, one in enumerate(seconds, start=1)}
    size = {"dtype": dtype, "batch_size": batch_size, "num_steps": num_steps}
    return {**size, "threads": times, "before": 300.0, "peak": 300.0 + batch_size * num_steps}


def test_figures_land_in_their_row_and_column():
    results = {
        "date": "2026-01-02",
        "machine": {"processor": "P", "instructions": "I", "threads": 2, "python": "3",
                    "torch": "2"},
        "load": 0.0,
        "gflops_torch.mm": [90.0, 91.0],
        "recipe": TINY,
        "num_words": 99,
        "cells": [
            cell("float32", size, unroll, (0.1 * unroll, 0.05 * unroll))
            for size in (16, 32)
            for unroll in (10, 20)
        ],
    }  # fmt: skip
    lines = throughput.markdown(results).splitlines()

    def row(heading, first):
        start = lines.index(heading)
        return next(line for line in lines[start:] if line.startswith(f"| {first} "))

    # A step's tokens, batch size x unroll, by its seconds: the other direction is not counted.
    assert row("## float32, 1 thread: tokens/s", 16) == "| 16 | 160 | 160 |"
    assert row("## float32, 2 threads: tokens/s", 32) == "| 32 | 640 | 640 |"
    assert row("## float32: peak memory, MB", 32) == "| 32 | 320 / 620 | 640 / 940 |"
    assert (
        row("## float32: peak memory, MB", "batch size") == "| batch size | unroll 10 | unroll 20 |"
    )


def test_sizes_are_those_of_the_recipe():
    recipe = throughput.recipe()
    assert parse_options(recipe["options"]).projection_dim == 128
    assert recipe["num_samples"] == 2048
    assert recipe["grad_norm"] == 1.0
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)], **recipe["adamw"])


def test_steps_train_on_zipf_text(monkeypatch, tmp_path):
    monkeypatch.setattr(throughput, "NUM_WORDS", 500)
    monkeypatch.setattr(throughput, "NUM_SENTENCES", 300)
    throughput.write_text(tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(TINY))
    vocabulary = WordVocabulary.from_file(tmp_path / "vocabulary.txt")
    words = (tmp_path / "text.txt").read_text().split()
    assert len(vocabulary) == 500
    assert sum(vocabulary.id(word) == vocabulary.unknown_id for word in words) == 0
    assert words.count(vocabulary.words[3]) > 5 * words.count(vocabulary.words[60]) > 0
    seen = []

    class Noting(torch.optim.AdamW):
        def step(self):
            matrix = self.param_groups[0]["params"][0]
            before = matrix.detach().clone()
            super().step()
            seen.append(bool((matrix != before).any()))

    monkeypatch.setattr(torch.optim, "AdamW", Noting)
    found = training_cell.timed(training_cell.training(tmp_path, 4, 5, "bfloat16"), 0.0)
    assert found["steps"] == training_cell.LEAST_STEPS
    assert found["least"] <= found["seconds"] <= found["most"]
    assert seen == [True] * (1 + training_cell.LEAST_STEPS)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(throughput, "recipe", lambda: TINY)
    monkeypatch.setattr(throughput, "NUM_WORDS", 500)
    monkeypatch.setattr(throughput, "NUM_SENTENCES", 2000)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_the_command_measures_every_cell_and_writes_its_report(tiny, monkeypatch, tmp_path):
    asked = []

    def measure(folder, batch_size, num_steps, dtype, seconds, threads):
        assert {path.name for path in folder.iterdir()} == {
            "recipe.json", "text.txt", "vocabulary.txt"
        }  # fmt: skip
        asked.append((dtype, batch_size, num_steps))
        found = cell(dtype, batch_size, num_steps, [1.0 for _ in threads])
        return {key: found[key] for key in ("threads", "before", "peak")}

    monkeypatch.setattr(throughput, "measure", measure)
    monkeypatch.setattr(
        sys, "argv", ["throughput", "--threads", "1", "1", "--reports", str(tmp_path)]
    )
    throughput.main()
    assert len(set(asked)) == len(asked) == 2 * 4 * 4
    (report,) = tmp_path.glob("*-throughput.md")
    (stored,) = tmp_path.glob("*-throughput.json")
    assert [one["batch_size"] for one in json.loads(stored.read_text())["cells"][:5]] == [
        16, 16, 16, 16, 32
    ]  # fmt: skip
    # One thread named twice is measured once.
    assert report.read_text().count("1 thread: tokens/s") == 2
    assert "| 128 | 1,280 | 2,560 | 5,120 | 10,240 |" in report.read_text()


@pytest.mark.slow
def test_a_cell_is_measured_in_a_process_of_its_own(tiny, tmp_path):
    throughput.write_text(tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(TINY))
    small, large = (
        training_cell.measure(tmp_path, 2, unroll, "bfloat16", 0.0, [1]) for unroll in (4, 2000)
    )
    assert large["peak"] > small["peak"] > small["before"] > 100
    assert large["threads"]["1"]["seconds"] > small["threads"]["1"]["seconds"] > 0
    with pytest.raises(RuntimeError, match="dtype is 'float8'"):
        training_cell.measure(tmp_path, 2, 4, "float8", 0.0, [1])
