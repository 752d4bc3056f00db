"""
Speed and memory of the biLM on a GPU. The frozen biLM runs with the kernels of `bilm/kernels/gpu/`,
as CUDA graphs and launched from Python ("fused"), and with plain PyTorch. Pretraining takes the
steps of `elmo-plugin pretrain`, with and without a CUDA graph.

    python -m benchmarks.gpu --quick                # three batch sizes, few rounds
    python -m benchmarks.gpu --text TEXT            # everything, in at most eight minutes

`--text` is the output folder of `results/embedded_bilm/prepare.sh`. The embedded biLM's recipe
trains on it for a minute, and its held-out perplexity is reported.

AllenNLP is not needed; if it is installed, its biLM is measured too. The command writes
`benchmarks/reports/DATE-gpu.json`, and tables as `.md`. Nothing else should use the GPU. `--device
cpu --tiny` only tests the command: on a CPU there are no fused steps.
"""

import argparse
import datetime
import itertools
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from benchmarks.report import table, write
from benchmarks.rounds import MatrixRate, in_turn, machine
from benchmarks.workload import SHAPES, Sentences
from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.kernels.gpu import cuda_graph, lstm_fused
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.config import LoopSettings
from elmo_plugin.bilm.pretraining.language_model import LanguageModel, sum_of_losses
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.optimization import WarmupCosine, clip_grad_norm
from elmo_plugin.bilm.pretraining.processes import Processes
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.step import Stepper
from elmo_plugin.bilm.pretraining.vocabulary import (
    WordVocabulary,
    find_text_files,
    vocabulary_of,
    word_counts,
)

DTYPES = (None, "bfloat16")
Work = Callable[[], Any]


class Sizes(NamedTuple):
    """
    Model sizes and batch sizes to measure. Inference runs `options` with each of `batch_sizes`.
    Pretraining runs each model in `pretraining`, with its number of streams, for `seconds`.
    """

    options: ElmoOptions
    batch_sizes: tuple[int, ...]
    pretraining: tuple[tuple[ElmoOptions, int], ...]
    num_words: int
    seconds: float


ORIGINAL = SHAPES["original"]
RECIPE = find_options("embedded")
SOFTMAX = {"num_samples": 4096, "count_exponent": 0.8, "num_frequent": 4096}
FULL = Sizes(ORIGINAL, (1, 8, 32, 64, 256), ((RECIPE, 512), (ORIGINAL, 128)), 60_000, 12.0)
QUICK = FULL._replace(batch_sizes=(1, 64, 256), seconds=6.0)
TINY_OPTIONS = ElmoOptions(8, 16, 2, 4, ((1, 4), (2, 6)), 1)
TINY = Sizes(TINY_OPTIONS, (1, 3), ((TINY_OPTIONS, 4),), 50, 0.0)
# Steps whose losses are compared with and without a graph, and steps before the clock starts.
COMPARED_STEPS = 6
NUM_STEPS = 20


class Benchmark:
    """Measurements of inference and of pretraining on one device."""

    def __init__(self, device: str, sizes: Sizes, rounds: int) -> None:
        self._device, self._sizes, self._rounds = device, sizes, rounds
        self._rate = MatrixRate(self.clock, device=device)
        self._half_rate = MatrixRate(self.clock, torch.bfloat16, device)

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
            for kind in ("plain", "fused", "graph"):
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
            for _ in range(4):  # graphs for sentences of other lengths are recorded
                for work in works(sentences.batch(size).to(self._device)).values():
                    work()
            exact = outputs["plain float32"]
            num_tokens: list[int] = []

            def candidates() -> dict[str, Work]:
                ids = sentences.batch(size)  # noqa: B023
                num_tokens.append(int((ids > 0).any(dim=-1).sum()))  # noqa: B023
                return works(ids.to(self._device))

            found = in_turn(candidates, self._rounds, self.clock, self._rate)
            seconds = {name: one["seconds"] for name, one in found["candidates"].items()}
            for name, one in found["candidates"].items():
                one["tokens_per_second"] = statistics.median(num_tokens) / seconds[name]
                one["peak"] = memory[name]
            found["largest_deviation"] = {
                name: max(float((a - b).abs().max()) for a, b in zip(output, exact))
                for name, output in outputs.items()
            }
            rate = found["candidates"]["graph bfloat16"]["tokens_per_second"]
            flops = 2e-9 * sum(one.numel() for one in original.lstm.parameters())
            found["bfloat16_share"] = (
                None if self._device == "cpu" else flops * rate / self._half_rate()
            )
            found["times_as_fast"] = {
                name: seconds[name] / seconds["graph bfloat16"]
                for name in ("graph float32", "AllenNLP float32")
                if name in seconds
            }
            cases.append({"batch_size": size, **found})
        return cases

    def pretraining(self) -> list[dict[str, Any]]:
        """Measure steps of pretraining in bfloat16 for each model size."""
        sentences = Sentences(num_words=self._sizes.num_words)
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "text.txt"
            some = sentences.tokens(min(300_000, 100 * len(sentences.words)))
            path.write_text("\n".join(map(" ".join, some)) + "\n", encoding="utf-8")
            words = vocabulary_of([path])
            return [self._pretraining(*one, path, words) for one in self._sizes.pretraining]

    def _pretraining(
        self, options: ElmoOptions, streams: int, path: Path, words: WordVocabulary
    ) -> dict[str, Any]:
        found, losses = {}, {}
        for kind in ("without a graph", "CUDA graph"):
            training = Training(self._device, options, streams, [path], words)
            training.stepper.captures = kind == "CUDA graph"
            losses[kind] = [training.loss() for _ in range(COMPARED_STEPS)]
            begin, steps = self.clock(), 0
            while not steps or time.perf_counter() - begin < self._sizes.seconds:
                training.step(wait=False)
                steps += 1
            training.loss()
            seconds = (self.clock() - begin) / (steps + 1)
            found[kind] = {"seconds": seconds, "tokens_per_second": streams * NUM_STEPS / seconds}
            found[kind]["captured"] = training.stepper.captures and training.is_captured
            found[kind]["captured_updates"] = training.stepper.captures_updates
            found[kind]["milliseconds"] = training.parts(self.clock)
            found[kind]["kernels"] = training.kernels()
        one, other = losses.values()
        deviation = max(abs(a - b) / b for a, b in zip(one, other))
        shape = f"{options.cell_size}/{options.projection_dim}"
        return {"shape": shape, "streams": streams, "steps": found, "loss_deviation": deviation}

    def recipe(self, text: Path, seconds: float) -> dict[str, Any]:
        """Train the embedded biLM's recipe for about `seconds`, and measure its perplexity."""
        words = WordVocabulary.from_file(text / "vocabulary.txt")
        train = find_text_files(text / "train" / "*.txt")
        options, streams = self._sizes.pretraining[0]
        training = Training(self._device, options, streams, train, words)
        for _ in range(COMPARED_STEPS):
            training.loss()
        begin = self.clock()
        for _ in range(20):
            training.step(wait=False)
        training.loss()
        training.num_steps = int(seconds / ((self.clock() - begin) / 21))
        begin = self.clock()
        while training.number < training.num_steps:
            training.step(wait=False)
        training.loss()
        found = {"seconds": self.clock() - begin, "steps": training.number}
        for domain in ("modern", "novel"):
            heldout = StreamLoader(
                find_text_files(text / "heldout" / f"{domain}-*.txt"), 256, shuffle=False
            )
            pairs = itertools.islice(heldout.pairs(words), 40)
            forward, backward, count = sum_of_losses(training.stepper.model, pairs)
            found[domain] = [math.exp(forward / count), math.exp(backward / count)]
        return found

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


class Training:
    """The steps of a pretraining run on a text, with the embedded biLM's recipe."""

    def __init__(
        self,
        device: str,
        options: ElmoOptions,
        streams: int,
        paths: list[Path],
        words: WordVocabulary,
    ) -> None:
        torch.manual_seed(0)
        counts = torch.tensor(word_counts(paths, words))
        small = {"num_samples": 10, "num_frequent": 10} if len(words) < 8192 else {}
        softmax = {**SOFTMAX, **small, "bias_from_counts": True}
        model = LanguageModel(
            BiLm(options),
            WordSoftmax(len(words), options.projection_dim, counts=counts, **softmax),
            0.0,
            "bfloat16",
        )
        settings = LoopSettings(
            {"type": "fused_adamw", "lr": 3e-3, "weight_decay": 0.01},
            learning_rate_scheduler=WarmupCosine(warmup_steps=1000),
            grad_norm=1.0,
            reset_probability=0.02,
        )
        place = torch.device(device)
        self.stepper = Stepper(model.to(place).train(), settings, Processes(place), paths)
        self.stepper.num_rows, self.stepper.own_rows = streams, range(streams)
        workers = 0 if device == "cpu" else 3
        text = StreamLoader(paths, streams, NUM_STEPS, files_at_once=200, num_workers=workers)
        self.pairs = text.pairs(words, endless=True)
        self.number, self.num_steps = 0, 100_000

    @property
    def is_captured(self) -> bool:
        return self.stepper.model.fuses_directions and self.stepper.model.softmax.fuses

    def step(self, wait: bool) -> list[Any]:
        self.number += 1
        pair, num_steps = next(self.pairs), self.num_steps
        results, _ = self.stepper.step([pair], self.number, num_steps, [], wait=wait)
        return results

    def parts(self, clock: Callable[[], float], count: int = 40) -> dict[str, float]:
        """Time parts of a step alone: return the milliseconds of each."""
        stepper = self.stepper
        pairs = [next(self.pairs) for _ in range(8)]

        def step(number: int) -> None:
            self.number += 1
            stepper.step([pairs[number % 8]], self.number, self.num_steps, [], wait=False)

        def optimizer(_: int) -> None:
            clip_grad_norm(stepper.model.parameters(), 1.0)
            stepper.optimizer.step()

        works: dict[str, Callable[[int], Any]] = {
            "loader": lambda _: next(self.pairs),
            "step without loader": step,
            "clipping and optimizer without graph": optimizer,
        }
        if (graph := stepper.graph) is not None:
            works["graph"] = lambda _: graph.replay()
        found = {}
        for name, work in works.items():
            self.loss()  # no step waits for its result
            begin = clock()
            for number in range(count):
                work(number)
            returned = time.perf_counter()
            found[name] = (clock() - begin) / count * 1000
            found[f"{name}, Python alone"] = (returned - begin) / count * 1000
        return found

    def kernels(self, count: int = 5, most: int = 25) -> list[tuple[str, float, float]]:
        """Return name, microseconds and launches a step of the kernels that take longest."""
        if self.stepper.processes.device.type == "cpu":
            return []
        self.loss()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(count):
                self.step(wait=False)
            self.loss()
        found = [
            (one.key[:100], one.self_device_time_total / (count + 1), one.count / (count + 1))
            for one in profile.key_averages()
        ]
        return sorted(found, key=lambda one: -one[1])[:most]

    def loss(self) -> float:
        """Take a step and wait for its loss."""
        return self.step(wait=True)[-1].loss


def _work(name: str, work: Work) -> Work:
    """
    Return the function to time, which avoids fused steps if `name` begins with `plain`, and graphs
    if it begins with `fused`.
    """
    kind = name.split()[0]
    if kind == "plain":  # a Mock would slow the timed loop
        return mock.patch.object(lstm_fused, "works", _never)(work)
    return mock.patch.object(cuda_graph, "record", _refuse)(work) if kind == "fused" else work


def _never(*_: Any) -> bool:
    return False


def _refuse(*_: Any) -> Any:
    raise RuntimeError("the benchmark wants none")


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
        if case["bfloat16_share"] is not None:
            others = (f"{k} {v:.2f}" for k, v in case["times_as_fast"].items())
            lines += [
                f"graph bfloat16: {case['bfloat16_share']:.1%} of `torch.mm` in bfloat16; times as "
                f"fast as {', '.join(others)}.",
                "",
            ]
        deviations = ", ".join(f"{k} {v:.1e}" for k, v in case["largest_deviation"].items())
        lines += [f"Largest deviation from plain float32: {deviations}.", ""]
    lines += ["## Steps of pretraining, bfloat16, unroll 20", ""]
    rows = [
        [case["shape"], str(case["streams"]), kind, f"{one['seconds'] * 1000:.2f}",
         f"{one['tokens_per_second']:,.0f}", "yes" if one["captured"] else "no",
         f"{case['loss_deviation']:.1e}"]
        for case in results["pretraining"]
        for kind, one in case["steps"].items()
    ]  # fmt: skip
    header = ["cell/projection", "streams", "", "ms a step", "tokens/s a direction", "captured"]
    lines += [*table([*header, "largest deviation of six losses"], rows), ""]
    for case in results["pretraining"]:
        for kind, one in case["steps"].items():
            lines += [f"## {case['shape']}, {kind}: where the time goes", ""]
            parts = [[name, f"{value:.3f}"] for name, value in one["milliseconds"].items()]
            lines += [*table(["", "ms"], parts), ""]
            kernels = [[name, f"{us:.1f}", f"{count:.1f}"] for name, us, count in one["kernels"]]
            lines += [*table(["kernel", "us a step", "launches"], kernels), ""] if kernels else []
    if "recipe" in results:
        found = results["recipe"]
        lines += [
            f"The recipe for {found['seconds']:.0f} seconds, {found['steps']:,} steps: held-out "
            f"perplexity forward and backward, modern {found['modern'][0]:.1f}, "
            f"{found['modern'][1]:.1f}, novels {found['novel'][0]:.1f}, {found['novel'][1]:.1f}.",
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
    parser.add_argument("--rounds", type=int, help="of each case (default: 11; quick 7, tiny 1)")
    parser.add_argument("--text", type=Path, help="train the recipe on the text in this folder")
    parser.add_argument("--reports", type=Path, default=Path("benchmarks/reports"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit("no GPU found: torch.cuda.is_available() is False (--device cpu --tiny tries it)")
    sizes = TINY if options.tiny else QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.tiny else 7 if options.quick else 11)
    benchmark = Benchmark(options.device, sizes, rounds)
    on_gpu = options.device != "cpu"
    if on_gpu:
        torch.cuda.set_device(options.device)  # kernels and graphs run on the current one
    fused = fused_steps_of(options.device)
    pretraining, inference = benchmark.pretraining(), benchmark.inference()
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "device": torch.cuda.get_device_name(options.device) if on_gpu else "CPU",
        "triton": sys.modules["triton"].__version__ if "triton" in sys.modules else "not imported",
        "fused": fused,
        "sizes": {"shape": f"{sizes.options.cell_size}/{sizes.options.projection_dim}"},
        "inference": inference,
        "pretraining": pretraining,
    }
    if options.text is not None:
        results["recipe"] = benchmark.recipe(options.text, 60.0)
    suffix = "-tiny" if options.tiny else "-quick" if options.quick else ""
    write(options.reports, f"{results['date'][:10]}-gpu{suffix}", results, markdown(results))


if __name__ == "__main__":
    main()
