"""
Speed and memory of the biLM on a GPU, with the fused LSTM steps of `bilm/kernels/lstm_fused.py` and
with plain PyTorch.

    python -m benchmarks.gpu --quick    # three batch sizes, few rounds
    python -m benchmarks.gpu            # every batch size, both sizes of pretraining

AllenNLP is not needed; if it is installed, its biLM is measured too. The command writes
`benchmarks/reports/DATE-gpu.json`, and tables as `.md`. Nothing else should use the GPU. `--device
cpu --tiny` only tests the command: on a CPU there are no fused steps.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from benchmarks.pretraining import NUM_STEPS, batch_of, step
from benchmarks.pretraining import OPTIONS as SMALLER
from benchmarks.report import table, write
from benchmarks.rounds import MatrixRate, in_turn, machine
from benchmarks.workload import SHAPES, Sentences
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.kernels import lstm_fused
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.softmax import WordSoftmax

DTYPES = (None, "bfloat16")
Work = Callable[[], Any]


class Sizes(NamedTuple):
    """
    Model sizes and batch sizes to measure. Inference runs `options` with each of `batch_sizes`.
    Pretraining runs each model in `pretraining` with `streams` as batch size.
    """

    options: ElmoOptions
    batch_sizes: tuple[int, ...]
    pretraining: tuple[ElmoOptions, ...]
    streams: int
    num_words: int
    num_samples: int


ORIGINAL = SHAPES["original"]
FULL = Sizes(ORIGINAL, (1, 8, 32, 64, 256), (SMALLER, ORIGINAL), 128, 50_000, 2_048)
QUICK = FULL._replace(batch_sizes=(1, 64, 256))
TINY_OPTIONS = ElmoOptions(8, 16, 2, 4, ((1, 4), (2, 6)), 1)
TINY = Sizes(TINY_OPTIONS, (1, 3), (TINY_OPTIONS,), 4, 50, 10)


class Benchmark:
    """Measurements of inference and of pretraining on one device."""

    def __init__(self, device: str, sizes: Sizes, rounds: int) -> None:
        self._device, self._sizes, self._rounds = device, sizes, rounds
        self._rate = MatrixRate(self.clock, device=device)

    def clock(self) -> float:
        """Wait until the device is idle, and return the time in seconds."""
        self.synchronize()
        return time.perf_counter()

    def synchronize(self) -> None:
        if self._device != "cpu":
            torch.cuda.synchronize(self._device)

    @torch.no_grad()
    def inference(self) -> list[dict[str, Any]]:
        """Time a frozen biLM; return the timings for each batch size, see `in_turn`."""
        torch.manual_seed(0)
        original = BiLm(self._sizes.options, state="reset")
        models: dict[str, Any] = {}
        for dtype in DTYPES:
            for kind in ("plain", "fused"):
                bilm = BiLm(self._sizes.options, state="reset", dtype=dtype)
                bilm.load_state_dict(original.state_dict())
                models[f"{kind} {dtype or 'float32'}"] = bilm.requires_grad_(False)
        for model in models.values():
            model.to(self._device).eval()
        stock = stock_bilm(original, self._device)
        if stock is not None:
            models["AllenNLP float32"] = stock

        def works(ids: torch.Tensor) -> dict[str, Work]:
            return {name: _work(name, lambda m=m: layers(m, ids)) for name, m in models.items()}

        cases = []
        for size in self._sizes.batch_sizes:
            sentences = Sentences(seed=size)
            ids = sentences.batch(size).to(self._device)
            memory, outputs = self._memory(works(ids))
            exact = outputs["plain float32"]
            num_tokens: list[int] = []

            def candidates() -> dict[str, Work]:
                ids = sentences.batch(size)  # noqa: B023
                num_tokens.append(int((ids > 0).any(dim=-1).sum()))  # noqa: B023
                return works(ids.to(self._device))

            found = self._in_turn(candidates, memory, lambda: statistics.median(num_tokens))  # noqa: B023
            found["largest_deviation"] = {
                name: max(float((a - b).abs().max()) for a, b in zip(output, exact))
                for name, output in outputs.items()
            }
            cases.append({"batch_size": size, **found})
        return cases

    def pretraining(self) -> list[dict[str, Any]]:
        """Measure the forward and backward passes of a pretraining batch for each model size."""
        return [self._pretraining(options) for options in self._sizes.pretraining]

    def _pretraining(self, options: ElmoOptions) -> dict[str, Any]:
        sizes, models = self._sizes, {}
        for dtype in DTYPES:
            for kind in ("plain", "fused"):
                torch.manual_seed(0)
                softmax = WordSoftmax(sizes.num_words, options.projection_dim, sizes.num_samples)
                model = LanguageModel(BiLm(options), softmax, 0.0, dtype)
                models[f"{kind} {dtype or 'float32'}"] = model.to(self._device).train()
        sentences = Sentences()

        def candidates() -> dict[str, Work]:
            batch = batch_of(sentences, sizes.streams, NUM_STEPS, sizes.num_words, self._device)
            return {name: _work(name, lambda m=m: step(m, batch)) for name, m in models.items()}

        memory, losses = self._memory(candidates())
        found = self._in_turn(candidates, memory, lambda: sizes.streams * NUM_STEPS)
        losses = {name: float(loss) for name, loss in losses.items()}
        return {"shape": f"{options.cell_size}/{options.projection_dim}", "losses": losses, **found}

    def _memory(self, works: dict[str, Work]) -> tuple[dict[str, float | None], dict[str, Any]]:
        """
        Run each candidate. Return two dictionaries, keyed by candidate: the largest increase in GPU
        memory, in MB, and the output.
        """
        memory: dict[str, float | None] = {}
        outputs = {}
        for name, work in works.items():
            work()
            self.synchronize()
            if self._device == "cpu":
                outputs[name], memory[name] = work(), None
                continue
            torch.cuda.reset_peak_memory_stats(self._device)
            held = torch.cuda.memory_allocated(self._device)
            outputs[name] = work()
            memory[name] = (torch.cuda.max_memory_allocated(self._device) - held) / 2**20
        return memory, outputs

    def _in_turn(
        self,
        candidates: Callable[[], dict[str, Work]],
        memory: dict[str, float | None],
        num_tokens: Callable[[], float],
    ) -> dict[str, Any]:
        found = in_turn(candidates, self._rounds, self.clock, self._rate)
        for name, one in found["candidates"].items():
            one["tokens_per_second"] = num_tokens() / one["seconds"]
            one["peak"] = memory[name]
        return found


def _work(name: str, work: Work) -> Work:
    """Return the function to time, which avoids fused steps if `name` begins with `plain`."""
    plainly = mock.patch.object(lstm_fused, "works", _never)  # a Mock would slow the timed loop
    return plainly(work) if name.startswith("plain") else work


def _never(*_: Any) -> bool:
    return False


def layers(bilm: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    bilm._elmo_lstm._states = None  # AllenNLP's biLM would continue from its last state
    return bilm(ids)["activations"]


def stock_bilm(bilm: BiLm, device: str) -> Any:
    """Return AllenNLP's biLM with the same weights, or `None` if it cannot be imported or run."""
    try:
        from allennlp.modules.elmo import _ElmoBiLm

        with tempfile.TemporaryDirectory() as name:
            options, weights = Path(name) / "options.json", Path(name) / "weights.hdf5"
            options.write_text(json.dumps(options_dict(bilm.options)), encoding="utf-8")
            save_weights(bilm, weights)
            stock = _ElmoBiLm(str(options), str(weights)).to(device).eval()
        layers(stock, Sentences().batch(2).to(device))
        return stock
    except Exception as error:  # AllenNLP is no longer maintained; any error is possible
        print(f"without AllenNLP: {error!r}", file=sys.stderr)
        return None


def fused_steps_of(device: str) -> dict[str, bool]:
    """Return whether the fused kernels work, by dtype and use, such as `float32, training`."""
    if device == "cpu":
        return {}
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    return {
        f"{name}, {use}": lstm_fused.works(
            torch.device(device), torch.float32, kind, use == "training"
        )
        for name, kind in kinds.items()
        for use in ("inference", "training")
    }


def markdown(results: dict[str, Any]) -> str:
    host, sizes = results["machine"], results["sizes"]
    working = ", ".join(f"{name} {'yes' if w else 'NO'}" for name, w in results["fused"].items())
    lines = [
        f"# Benchmark on a GPU of {results['date']}",
        "",
        f"{results['device']}; {host['processor']}, Python {host['python']}, torch "
        f"{host['torch']}, Triton {results['triton']}. Fused steps work: {working or 'not tried'}.",
        "",
        "Random weights, sentences of 10 to 30 tokens, Zipf words. Ratio: how many times faster "
        "than plain steps in float32 in the same round. Memory: megabytes of the GPU at the "
        "highest, beyond models and batch.",
        "",
    ]
    for case in results["inference"]:
        lines += [f"## Frozen biLM, {sizes['shape']}, batch {case['batch_size']}", ""]
        lines += _candidates(case)
        deviations = ", ".join(f"{k} {v:.1e}" for k, v in case["largest_deviation"].items())
        lines += [f"Largest deviation from plain float32: {deviations}.", ""]
    for case in results["pretraining"]:
        lines += [
            f"## Loss and gradients of pretraining, {case['shape']}, batch {sizes['streams']}, "
            f"unroll {NUM_STEPS}, {sizes['num_words']:,} words, {sizes['num_samples']:,} negatives",
            "",
            *_candidates(case),
            f"Losses: {', '.join(f'{k} {v:.5f}' for k, v in case['losses'].items())}.",
            "",
        ]
    return "\n".join(lines)


def _candidates(case: dict[str, Any]) -> list[str]:
    rows = [
        [
            name,
            f"{one['seconds'] * 1000:.3f}",
            *(f"{one[key]:.2f}" for key in ("ratio", "least", "most")),
            f"{one['tokens_per_second']:,.0f}",
            "" if one["peak"] is None else f"{one['peak']:,.0f}",
        ]
        for name, one in case["candidates"].items()
    ]
    header = ["", "median, ms", "ratio", "least", "most", "tokens/s", "memory, MB"]
    rate = case["torch.mm_gflops"]
    return [
        *table(header, rows),
        f"`torch.mm`, float32: median {rate['median']:,.0f}, least {rate['least']:,.0f} GFLOP/s; "
        f"{case['rounds']} rounds kept, {case['repeated_rounds']} repeated.",
        "",
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.split("\n")[1]
    )
    parser.add_argument("--quick", action="store_true", help="fewer batch sizes and rounds")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--device", default="cuda:0", help="cuda:N or cpu (default: cuda:0)")
    parser.add_argument("--rounds", type=int, help="of each case (default: 21; quick 7, tiny 1)")
    parser.add_argument("--reports", type=Path, default=Path("benchmarks/reports"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit("no GPU found: torch.cuda.is_available() is False (--device cpu --tiny tries it)")
    sizes = TINY if options.tiny else QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.tiny else 7 if options.quick else 21)
    benchmark = Benchmark(options.device, sizes, rounds)
    on_gpu = options.device != "cpu"
    fused = fused_steps_of(options.device)
    inference, pretraining = benchmark.inference(), benchmark.pretraining()
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "device": torch.cuda.get_device_name(options.device) if on_gpu else "CPU",
        "triton": sys.modules["triton"].__version__ if "triton" in sys.modules else "not imported",
        "fused": fused,
        "sizes": {
            "shape": f"{sizes.options.cell_size}/{sizes.options.projection_dim}",
            "streams": sizes.streams,
            "num_words": sizes.num_words,
            "num_samples": sizes.num_samples,
        },
        "inference": inference,
        "pretraining": pretraining,
    }
    suffix = "-tiny" if options.tiny else "-quick" if options.quick else ""
    write(options.reports, f"{results['date'][:10]}-gpu{suffix}", results, markdown(results))


if __name__ == "__main__":
    main()
