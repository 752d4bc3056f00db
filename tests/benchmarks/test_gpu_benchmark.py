"""The GPU's benchmark at tiny sizes on the CPU: it runs through, and its report has every part."""

import json
import sys

import pytest
import torch

from benchmarks import gpu
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.gpu import cuda_graph, lstm_fused
from elmo_plugin.bilm.pretraining.vocabulary import vocabulary_of
from tests.fresh_process import run_core as run


@pytest.mark.usefixtures("steady_machine")
def test_the_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "stock_bilm", lambda bilm, device: None)
    monkeypatch.setattr(gpu.Benchmark, "recipe", one_second(gpu.Benchmark.recipe))
    text = prepared(tmp_path / "text")
    arguments = ["--device", "cpu", "--tiny", "--text", str(text), "--reports", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    gpu.main()
    (report,) = tmp_path.glob("*-gpu-tiny.md")
    assert report.read_text() in capsys.readouterr().out
    assert report.read_text().count("| graph bfloat16 |") == 2
    (stored,) = tmp_path.glob("*-gpu-tiny.json")
    results = json.loads(stored.read_text())
    assert [case["batch_size"] for case in results["inference"]] == [1, 3]
    for case in results["inference"]:
        assert case["largest_deviation"]["graph float32"] < 1e-6
        assert case["times_as_fast"]["graph float32"] > 0
        deviation = case["largest_deviation"]["plain bfloat16"]
        assert (deviation > 0) is (library.variant() is not None)
        assert deviation < 0.01
    (case,) = results["pretraining"]
    assert case["loss_deviation"] < 1e-6
    assert {*case["steps"]} == {"without a graph", "CUDA graph"}
    for one in case["steps"].values():
        assert one["tokens_per_second"] > 0
        assert {"loader", "step without loader", "step without loader, Python alone"} <= {
            *one["milliseconds"]
        }
        assert all(value > 0 for value in one["milliseconds"].values())
    assert 1 < results["recipe"]["modern"][0] < 100


def one_second(recipe):
    return lambda benchmark, text, seconds: recipe(benchmark, text, seconds / 60)


def prepared(folder):
    """What `results/embedded_bilm/prepare.sh` writes."""
    for split in ("train", "heldout"):
        (folder / split).mkdir(parents=True)
        for name in ("modern-a.txt", "novel-b.txt"):
            (folder / split / name).write_text("the cat sat on a mat\n" * 9000)
    paths = sorted((folder / "train").glob("*.txt"))
    vocabulary_of(paths).save(folder / "vocabulary.txt")
    return folder


def test_candidates_run_what_they_are_named_for(monkeypatch):
    monkeypatch.setattr(lstm_fused, "works", lambda *_: True)
    monkeypatch.setattr(cuda_graph, "record", lambda *_: True)

    def work():
        try:
            return lstm_fused.works(None, None, None, None), cuda_graph.record(None)
        except RuntimeError:
            return True, False

    names = "plain float32", "fused float32", "graph bfloat16", "AllenNLP float32"
    found = [gpu._work(name, work)() for name in names]
    assert found == [(False, True), (True, False), (True, True), (True, True)]


def test_weights_of_the_peer_are_ours():
    torch.manual_seed(0)
    bilm = gpu.BiLm(gpu.TINY_OPTIONS, state="reset")
    ids = gpu.Sentences().batch(2)
    for ours, theirs in zip(
        gpu.layers(bilm, ids), gpu.layers(gpu.stock_bilm(bilm, "cpu"), ids), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_without_a_gpu_it_says_so():
    program = "import runpy; runpy.run_module('benchmarks.gpu', run_name='__main__')"
    done = run(program, status=1)
    assert done.stderr.splitlines()[-1].startswith("no GPU found")
    assert "Traceback" not in done.stderr


def test_it_does_not_import_allennlp():
    program = "import sys, benchmarks.gpu; print([n for n in sys.modules if 'allennlp' in n])"
    assert run(program).stdout == "[]\n"
