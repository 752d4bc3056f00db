"""Which kernel serves which product: the table, and the figures behind it."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import tune
from elmo_plugin.bilm.kernels import processors
from elmo_plugin.bilm.kernels.chooser import (
    LINEAR_KERNELS,
    auto_training_dtype,
    kernel_works,
    linear_kernel,
    matmul_for,
)
from elmo_plugin.bilm.kernels.prepacked_linear import PrepackedLinear, onednn_works
from elmo_plugin.bilm.kernels.processors import (
    ROWS,
    capability,
    model_name,
    processor,
    use_processor,
    vendor,
)
from elmo_plugin.bilm.kernels.training_linear import onednn_matmul, plain_matmul

ROOT = Path(__file__).parents[3]
RECORDED = sorted((ROOT / "benchmarks/products").glob("*.json"))
# Larger rows than a few, as everywhere: rows, inputs, outputs of the Original's state weight.
WIDE = 300, 70


def capable_of(
    monkeypatch, *, vendor="GenuineIntel", level="AVX512", instructions="sse avx", **questions
):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: level)
    monkeypatch.setattr(processors, "vendor", lambda: vendor)
    monkeypatch.setattr(processors, "instructions", lambda: instructions)
    for question in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        answer = questions.get(question, False)
        monkeypatch.setattr(torch.cpu, question, lambda answer=answer: answer, raising=False)
    return capability.__wrapped__()


def test_a_processor_is_known_by_what_it_can_do(monkeypatch):
    bf16 = {"_is_avx512_bf16_supported": True}
    amx = {**bf16, "_is_amx_tile_supported": True}
    assert capable_of(monkeypatch, **amx) == "amx"
    assert capable_of(monkeypatch, **bf16) == "avx512_bf16_slow"
    assert capable_of(monkeypatch, vendor="AuthenticAMD", **bf16) == "avx512_bf16"
    both = {**bf16, "instructions": "avx avx_vnni avx512_bf16"}
    assert capable_of(monkeypatch, vendor="AuthenticAMD", **both) == "avx512_bf16_avx_vnni"
    assert capable_of(monkeypatch, **both) == "avx512_bf16_slow"
    # Unknown ones, and those that nobody measured.
    assert capable_of(monkeypatch, vendor="", **bf16) == "safe"
    assert capable_of(monkeypatch) == "safe"
    assert capable_of(monkeypatch, level="AVX2", **amx) == "safe"
    assert capable_of(monkeypatch, level="DEFAULT", vendor="") == "safe"


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"])
def test_libraries_that_are_held_back_make_another_processor(variable, monkeypatch):
    monkeypatch.setenv(variable, "AVX2")
    assert capability.__wrapped__() == "safe"


def test_what_linux_says_of_the_processor(monkeypatch, tmp_path):
    said = tmp_path / "cpuinfo"
    monkeypatch.setattr(processors, "Path", lambda path: {"/proc/cpuinfo": said}[path])
    monkeypatch.setattr(processors.platform, "processor", lambda: "")
    monkeypatch.setattr(processors.platform, "machine", lambda: "aarch64")
    assert (vendor(), model_name()) == ("", "aarch64")
    said.write_text("processor : 0\nBogoMIPS : 50\n")
    assert (vendor(), model_name()) == ("", "aarch64")
    said.write_text(
        "vendor_id\t: GenuineIntel\nmodel\t\t: 7\nmodel name\t: A: B\nmodel name\t: C\n"
    )
    assert (vendor(), model_name()) == ("GenuineIntel", "A: B")


def test_the_choice_can_be_overridden(monkeypatch):
    monkeypatch.setenv(processors.VARIABLE, "safe")
    assert processor() == "safe"
    with use_processor("amx"):
        assert processor() == "amx"
    assert processor() == "safe"
    assert isinstance(linear_kernel(torch.randn(*WIDE), "bfloat16"), PrepackedLinear)
    monkeypatch.setenv(processors.VARIABLE, "pentium")
    with pytest.raises(ValueError, match=r"ELMO_PLUGIN_PROCESSOR is 'pentium', expected one of"):
        processor()
    with pytest.raises(ValueError, match="expected one of"), use_processor("abacus"):
        pass


def test_every_kernel_that_the_table_names_is_one():
    for row in ROWS.values():
        names = {name for kernels in (row.float32, row.float16, row.bfloat16) for name in kernels}
        assert names <= set(LINEAR_KERNELS)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16", "int8"])
def test_every_row_multiplies_here(name, dtype):
    """What is not there on this processor is replaced by what is at least as exact."""
    torch.manual_seed(0)
    rows, weight = torch.randn(9, 70), torch.randn(*WIDE)
    expected = rows @ weight.t()
    tolerance = {None: 2e-6, "float16": 1e-3, "bfloat16": 0.01, "int8": 0.02}[dtype]
    with use_processor(name):
        for many_rows in (False, True):
            found = linear_kernel(weight, dtype, many_rows)(rows)
            assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_no_dtype_is_slower_than_float32_where_it_was_measured(path):
    found = json.loads(path.read_text("utf-8"))
    row, times = ROWS[found["row"]], found["microseconds"]
    for count in tune.CASES:
        if found["steps"]:
            steps = {
                dtype: found["steps"][
                    f"{weights}, {tune.CPP}" if weights else f"{dtype}, {tune.LIBRARIES}"
                ][str(count)]
                for dtype in ("float32", "float16", "bfloat16", "int8")
                for weights in [row.compiled_layers.get(dtype)]
            }
            assert max(steps.values()) <= tune.TOLERANCE * steps["float32"]
        exact = tune.case(times, row.float32, count)
        for kernels in (row.float16, row.bfloat16):
            assert tune.case(times, kernels, count) <= tune.TOLERANCE * exact
        int8 = sum(
            times[use][f"int8 {'oneDNN' if count >= many else 'FBGEMM'}"][str(count)]
            for use, many in zip(("state", "narrow"), row.int8_many)
        )
        assert int8 < exact
    training = found["training"]
    library = "oneDNN" if row.training_onednn else "MKL"
    assert training[row.training_dtype or f"float32, {library}"] == min(training.values())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_table_is_what_the_figures_say(path):
    found = json.loads(path.read_text("utf-8"))
    chosen = tune.choose(found["microseconds"], found["steps"], found["training"])
    assert chosen == ROWS[found["row"]]


@pytest.mark.parametrize(
    ("name", "report", "others"),
    [
        ("avx512_bf16", "2026-11-24-amd-quick", {}),
        ("avx512_bf16_avx_vnni", "2026-11-25-amd-family-26", {"float16": "int16"}),
    ],
)
def test_on_amd_whole_runs_were_measured(name, report, others):
    """Whole batches with that row: a `dtype` may gain nothing, but loses nothing."""
    path = ROOT / "benchmarks/reports" / f"{report}.json"
    report = json.loads(path.read_text("utf-8"))
    assert "AMD" in report["machine"]["processor"]
    row = ROWS[name]
    assert row.compiled_layers == {**processors.EACH_IN_CPP, **others}
    for case in report["inference"]:
        seconds = {name: one["seconds"] for name, one in case["contestants"].items()}
        for temperature in ("cold", "warm"):
            for dtype in ("float16", "bfloat16", "int8"):
                least = seconds[f"float32 {temperature}"]
                assert seconds[f"{dtype} {temperature}"] <= tune.TOLERANCE * least
    steps = report["pretraining"]["contestants"]
    assert steps["ours, bfloat16"]["seconds"] < steps["ours"]["seconds"]
    assert row.training_dtype == "bfloat16"


def test_a_slower_kernel_is_not_chosen():
    """By hand: the smaller weights are faster for one sentence and slower for 64."""
    times = {
        "state": {"onednn": {"1": 10.0, "64": 100.0}, "fbgemm_float16": {"1": 5.0, "64": 120.0}},
        "narrow": {"onednn": {"1": 1.0, "64": 10.0}},
        "input": {"onednn_uncopied": {"64": 100.0}},
    }
    training = {"float32, oneDNN": 1.0, "float32, MKL": 1.5, "bfloat16": 2.0}
    assert tune.choose(times, {}, training).float16.state == "onednn"
    times["state"]["fbgemm_float16"]["64"] = 105.0
    assert tune.choose(times, {}, training).float16.state == "fbgemm_float16"
    assert tune.choose(times, {}, training).training_dtype is None
    assert tune.choose(times, {}, training).training_onednn
    assert tune.choose(times, {}, training).int8_many == (processors.NEVER, processors.NEVER)


def test_layers_in_cpp_are_chosen_where_they_are_faster():
    """By hand: as fast for one sentence; for 64 much faster, a little slower, slower."""
    steps = {"float32, libraries": {"1": 10.0, "64": 100.0}, "float32, C++": {"1": 10.0}}
    float32 = {"float32": "float32"}
    for seconds, expected in ((50.0, float32), (104.0, {}), (106.0, {})):
        steps["float32, C++"]["64"] = seconds
        assert tune.compiled_layers(steps) == expected
    steps["float32, C++"] = {"1": 9.0, "64": 104.0}
    assert tune.compiled_layers(steps) == float32
    steps["float32, C++"]["64"] = 106.0
    assert tune.compiled_layers(steps) == {}


def test_a_layer_in_cpp_may_be_more_exact():
    """By hand: where products of bfloat16 are slow, its weights lie in half precision."""
    steps = {
        "bfloat16, libraries": {"1": 10.0, "64": 100.0},
        "bfloat16, C++": {"1": 9.0, "64": 90.0},
        "float16, libraries": {"1": 1.0, "64": 1.0},
        "float16, C++": {"1": 8.0, "64": 80.0},
    }
    assert tune.compiled_layers(steps) == {"bfloat16": "float16"}
    steps["int16, C++"] = {"1": 7.9, "64": 80.0}
    assert tune.compiled_layers(steps) == {"bfloat16": "int16"}
    steps["float16, libraries"] = {"1": 8.0, "64": 82.0}
    assert tune.compiled_layers(steps) == {"bfloat16": "int16", "float16": "int16"}
    steps["bfloat16, C++"]["1"] = 5.0
    assert tune.compiled_layers(steps) == {"bfloat16": "bfloat16", "float16": "int16"}


def test_each_kernel_that_works_here_gives_the_product():
    torch.manual_seed(0)
    rows, weight = torch.randn(11, 70), torch.randn(*WIDE)
    expected = rows @ weight.t()
    working = [name for name in LINEAR_KERNELS if kernel_works(name, weight)]
    assert "bfloat16" in working
    for name in working:
        kernel = LINEAR_KERNELS[name](weight)
        tolerance = 0.01 if name.endswith("bfloat16") else 1e-3
        sums = expected.clone()
        kernel.add_to(sums, rows)
        for found in (kernel(rows), sums - expected):
            assert (found - expected).abs().max() <= tolerance * expected.abs().max()
        assert kernel(rows[:0]).shape == (0, WIDE[0])


def test_auto_is_the_faster_training_dtype():
    for name, expected in (("amx", "bfloat16"), ("avx512_bf16", "bfloat16"), ("safe", None)):
        with use_processor(name):
            assert auto_training_dtype(torch.device("cpu")) == expected
            # Nobody measured a GPU.
            assert auto_training_dtype(torch.device("cuda")) is None


def test_which_library_trains():
    weight = torch.zeros(2, 2)
    with use_processor("amx"):
        assert matmul_for(weight, torch.float32) is plain_matmul
    with use_processor("safe"):
        expected = onednn_matmul if onednn_works("float32") else plain_matmul
        assert matmul_for(weight, torch.float32) is expected
