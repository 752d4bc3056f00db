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
# Target fractions of the machine's peak throughput; same keys as above.
SHARES = {
    ("original", 64, "float32 cold"): 0.65,
    ("original", 64, "float32 warm"): 0.70,
    ("original", 1, "float32 warm"): 0.80,
    ("original", 1, "float16 warm"): 0.70,
    ("original", 1, "int8 warm"): 0.60,
    ("original", 64, "int8 warm"): 0.55,
    ("original", 256, "float32 warm"): 0.80,
    ("small", 32, "float32 warm"): 0.60,
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
        "how many times faster than `allennlp.modules.elmo` in the same round. Share: of the speed "
        "that this machine's best products, or its rate of reading each step's weights, allow "
        "(`benchmarks/limit.py`); at most: where inputs' products and steps take turns, as they "
        "must. Bars are the least ratio and the least share that were promised.",
        "",
        *_rates(results),
    ]
    for case in results["inference"]:
        lines += _inference(case)
    lstm = results["lstm"]
    lines += [
        "## LSTM layers alone, Original, batch 64, float32",
        "",
        f"{lstm['gflops']:.0f} GFLOP/s, {lstm['share_of_torch.mm']:.0%} of `torch.mm` in the same "
        "rounds (bar: 85%).",
        "",
        "## First batch of one sentence, Original (weights are laid out)",
        "",
        *table(
            ["dtype", "first, s", "later, s"],
            [[one["dtype"], f"{one['first']:.3f}", f"{one['later']:.3f}"]
             for one in results["preparation"]],
        ),
        "## Peak memory, Original, batch 64 (MB; bar: 0.75 of stock)",
        "",
        *_memory(results["memory"]),
        *_fine_tuning(results["fine_tuning"]),
        "## One sentence, and training steps, on a machine that others use",
        "",
        "Busy single-threaded processes of others run meanwhile; ten runs. Bar of the steps: the "
        "worst with one a core is at most three times the quiet median.",
        "",
        *_noisy_neighbours(results["noisy_neighbours"]),
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
        *_candidates(results["pretraining"], lambda name: PRETRAINING_BARS.get(name, "")),
        "Shares of the product rate, in the step's dtype: "
        + ", ".join(
            f"{name} {one['share']:.0%} (bar: {TRAINING_SHARES.get(name, 'none')})"
            for name, one in results["pretraining"]["candidates"].items()
        )
        + ".",
        f"Losses differ by {results['pretraining']['difference']['loss']:.1e}, gradients by "
        f"{results['pretraining']['difference']['largest_gradient']:.1e} at most.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _rates(results: dict[str, Any]) -> list[str]:
    """Return a table of the machine's GEMM and memory read throughput, which limit the biLM."""
    rows = [
        [dtype, ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())]
        for dtype, rates in results["products"].items()
    ]
    lines = table(["products", "GFLOP/s at best, by library"], rows)
    reading = ", ".join(
        f"{int(size) / 2**20:.1f} MB {median:.0f} ({least:.0f} to {most:.0f})"
        for size, (median, least, most) in results["reading"].items()
    )
    return [
        *lines,
        f"Reading as many bytes again and again, GB/s, before each round: {reading}.",
        "Steps of one sentence whose weights lie in one core's own cache, GB/s: "
        + ", ".join(f"{dtype} {rate:.0f}" for dtype, rate in results["own_cache"].items())
        + ".",
        "",
    ]


def _inference(case: dict[str, Any]) -> list[str]:
    key = case["shape"], case["batch_size"]
    rows = []
    for name, one in case["candidates"].items():
        shares = [f"{one[what]:.0%}" if what in one else "" for what in ("share", "share_at_most")]
        least = SHARES.get((*key, name))
        ratios = [f"{one[what]:.2f}" for what in ("ratio", "least", "most")]
        rows.append([name, f"{one['seconds']:.4f}", *ratios, str(BARS.get((*key, name), "")),
                     *shares, "" if least is None else f"{least:.0%}"])  # fmt: skip
    deviations = ", ".join(f"{k} {v:.1e}" for k, v in case["largest_deviation"].items())
    stock = f"Stock: {case['stock_gflops']:.0f} GFLOP/s. " if "stock_gflops" in case else ""
    other = "stock" if stock else "float32, with which ratios are too"
    return [
        f"## {case['shape'].capitalize()}, batch {case['batch_size']}",
        "",
        *table(["", "median, s", "ratio", "least", "most", "bar", "share", "at most", "bar"], rows),
        f"{stock}Largest deviation from {other}: {deviations}. `torch.mm`: median "
        f"{case['torch.mm_gflops']['median']:.0f}, least {case['torch.mm_gflops']['least']:.0f} "
        f"GFLOP/s; {case['rounds']} rounds kept, {case['repeated_rounds']} repeated.",
        "",
    ]


def _candidates(case: dict[str, Any], bar: Any) -> list[str]:
    return table(
        ["", "median, s", "ratio", "least", "most", "bar"],
        [
            [name, f"{one['seconds']:.4f}", *(f"{one[k]:.2f}" for k in ("ratio", "least", "most")),
             bar(name)]
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
         f"{one['share']:.0%}" if "share" in one else ""]
        for name, one in found.items()
    ]  # fmt: skip
    return [
        "## A fine-tuning step, Original, batch 32 (a tagger whose biLM trains)",
        "",
        *table(["", "median, s", "ratio", "peak, MB", "of stock's", "share"], rows),
        f"Bars: a ratio of {FINE_TUNING_BARS[0]}, {FINE_TUNING_BARS[1]} of stock's peak, a share "
        f"of {TRAINING_SHARES['fine-tuning']}. `operators`: ours without the library. Share: "
        "products of the plain definition over the time of both passes, relative to `torch.mm`.",
        "",
    ]


def _noisy_neighbours(found: dict[str, Any]) -> list[str]:
    header, *rows = noisy_neighbours.rows(found)
    return table(header, rows)


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
