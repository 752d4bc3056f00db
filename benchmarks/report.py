"""Report of the measurements in Markdown."""

import json
from pathlib import Path
from typing import Any

from benchmarks import noisy_neighbours

# Target speedups over AllenNLP, by model size, batch size and candidate.
BARS = {
    ("original", 64, "float32 cold"): 2.8,
    ("original", 64, "float32 warm"): 3.0,
    ("original", 1, "float32 cold"): 5.0,
    ("original", 64, "bfloat16 cold"): 4.8,
    ("original", 64, "bfloat16 warm"): 5.5,
    ("original", 64, "int8 cold"): 6.0,
    ("original", 1, "bfloat16 cold"): 13.0,
    ("original", 1, "int8 cold"): 20.0,
    ("small", 32, "float32 cold"): 4.8,
    ("small", 32, "float32 warm"): 7.0,
    ("small", 32, "bfloat16 cold"): 7.0,
    ("small", 32, "bfloat16 warm"): 12.0,
    ("original", 64, "float32 cold, without the library"): 2.0,
}
PRETRAINING_BARS = {"ours": "1.3", "ours, bfloat16": "2.0"}
# Least shares of the product rate in training.
TRAINING_SHARES = {"fine-tuning": "70%", "ours": "75%", "ours, bfloat16": "55%"}
# Targets relative to AllenNLP: speedup and memory of fine-tuning, and speedup of extraction.
FINE_TUNING_BARS = 2.0, 0.75
EXTRACTION_BARS = "3 on Intel, 5 on AMD"


def markdown(results: dict[str, Any]) -> str:
    """Return the report: tables of medians, and of speedups with their range over all rounds."""
    machine = results["machine"]
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in results["gflops_torch.mm"].items())
    lines = [
        f"# Benchmark of {results['date']}",
        "",
        f"{machine['processor']} ({machine['instructions']}), {machine['threads']} threads, "
        f"Python {machine['python']}, torch {machine['torch']}; {results['clock']} time. "
        f"`torch.mm`: {rates} GFLOP/s.",
        "Random weights of the released shapes, sentences of 10 to 30 tokens, Zipf words. Ratio: "
        "how many times faster than `allennlp.modules.elmo` in the same round. Share: the products "
        "of the plain definition over the time, relative to the rate of `torch.mm` in float32 in "
        "the same run, which our products exceed on some processors; one sentence waits for "
        f"memory. Bars are what was promised. The run took {results['minutes']:.1f} minutes.",
        "",
    ]
    for case in results["inference"]:
        lines += _inference(case)
    neighbours = noisy_neighbours.rows(results["noisy_neighbours"])
    lines += [
        "## Peak memory, Original, batch 64 (MB; bar: 0.75 of stock)",
        "",
        *_memory(results["memory"]),
        *_fine_tuning(results["fine_tuning"]),
        "## One sentence, and training steps, on a machine that others use",
        "",
        "Busy single-threaded processes of others run meanwhile; ten runs. Bar of the steps: the "
        "worst with one a core is at most three times the quiet median.",
        "",
        *table(neighbours[0], neighbours[1:]),
        *_extraction(results["extraction"]),
        "## Startup, seconds of a process",
        "",
        *table(["", "s"], [[name, f"{s:.2f}"] for name, s in results["startup"].items()]),
        "## An epoch of NER with ELMo, biLM of Original shapes, frozen and cached",
        "",
        "Released setup, batches of 64, CRF, data loading and optimizer included. Ratio: the "
        "epoch's time to that with ready random vectors in place of ELMo, after the first epoch.",
        "",
        *_epochs(results["ner_epoch"]),
        "## Pretraining step, 512/128, batch 128, unroll 20, 50,000 words, 2,048 negatives",
        "",
        *_candidates(results["pretraining"], PRETRAINING_BARS, TRAINING_SHARES),
        "Shares are those of the product rate in the step's dtype.",
        f"Losses differ by {results['pretraining']['difference']['loss']:.1e}, gradients by "
        f"{results['pretraining']['difference']['largest_gradient']:.1e} at most.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _inference(case: dict[str, Any]) -> list[str]:
    key = case["shape"], case["batch_size"]
    bars = {name: BARS.get((*key, name), "") for name in case["candidates"]}
    deviations = ", ".join(f"{k} {v:.1e}" for k, v in case["largest_deviation"].items())
    other = "stock" if "stock" in bars else "float32, with which ratios are too"
    return [
        f"## {case['shape'].capitalize()}, batch {case['batch_size']}",
        "",
        *_candidates(case, bars, {}),
        f"Largest deviation from {other}: {deviations}. `torch.mm`: median "
        f"{case['torch.mm_gflops']['median']:.0f}, least {case['torch.mm_gflops']['least']:.0f} "
        f"GFLOP/s; {case['rounds']} rounds kept, {case['repeated_rounds']} repeated.",
        "",
    ]


def _candidates(case: dict[str, Any], bars: dict[str, Any], shares: dict[str, str]) -> list[str]:
    return table(
        ["", "median, s", "ratio", "least", "most", "bar", "share", "bar"],
        [
            [name, f"{one['seconds']:.4f}", *(f"{one[k]:.2f}" for k in ("ratio", "least", "most")),
             str(bars.get(name, "")), f"{one['share']:.0%}" if "share" in one else "",
             shares.get(name, "")]
            for name, one in case["candidates"].items()
        ],
    )  # fmt: skip


def _memory(found: dict[str, Any]) -> list[str]:
    stock = found["stock"]
    rows = []
    for name, one in found.items():
        whole = one["running"] / stock["running"]
        less = (one["running"] - one["before"]) / (stock["running"] - stock["before"])
        megabytes = [f"{one[key]:.0f}" for key in ("before", "running", "whole")]
        rows.append([name, *megabytes, f"{whole:.2f}", f"{less:.2f}"])
    header = ["", "before loading", "running", "whole process", "running / stock's", "less before"]
    return table(header, rows)


def _fine_tuning(found: dict[str, Any]) -> list[str]:
    stock = found["stock"]
    rows = [
        [name, f"{one['seconds']:.3f}", f"{stock['seconds'] / one['seconds']:.2f}",
         f"{one['peak']:.0f}", f"{one['peak'] / stock['peak']:.2f}",
         f"{one['share']:.0%}"]
        for name, one in found.items()
    ]  # fmt: skip
    return [
        "## A fine-tuning step, Original, batch 32 (a tagger whose biLM trains)",
        "",
        *table(["", "median, s", "ratio", "peak, MB", "of stock's", "share"], rows),
        f"Bars: a ratio of {FINE_TUNING_BARS[0]}, {FINE_TUNING_BARS[1]} of stock's peak, a share "
        f"of {TRAINING_SHARES['fine-tuning']} of both passes. `operators`: ours without the "
        "library.",
        "",
    ]


def _extraction(found: dict[str, Any]) -> list[str]:
    rows = [
        [name, f"{found[name]['seconds']:.1f}", f"{found[name]['tokens_per_second']:.0f}"]
        for name in ("stock", "ours")
    ]
    return [
        f"## Extraction, Original, float32, {found['lines']:,} lines, {found['tokens']:,} tokens",
        "",
        *table(["", "s", "tokens a second"], rows),
        f"Whole processes. Ratio {found['ratio']:.2f} (bar, of 20,000 lines: {EXTRACTION_BARS}).",
        "",
    ]


def _epochs(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, one in found["candidates"].items():
        ratios = [f"{one[key]:.2f}" for key in ("ratio", "least", "most")]
        bar = "at most 1.20" if name == "cache in memory" else ""
        rows.append([name, f"{one['first_epoch']:.2f}", f"{one['seconds']:.2f}", *ratios, bar])
    header = ["", "first epoch, s", "later, median, s", "ratio", "least", "most", "bar"]
    return table(header, rows)


def write(reports: Path, name: str, results: dict[str, Any], report: str) -> None:
    """Write results as JSON and their report as Markdown, and print the report."""
    reports.mkdir(parents=True, exist_ok=True)
    (reports / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (reports / f"{name}.md").write_text(report, encoding="utf-8")
    print(report)


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]
