"""
Measures the products of the biLMs by every linear kernel there is, and prints the row of
`elmo_plugin/bilm/kernels/processors.py` for this processor.

    python -m benchmarks.tune [--threads 2] [--write benchmarks/products/NAME.json]

A minute on two cores; nothing else should run. Each kernel multiplies with several weights in turn,
so that none stays in the cache of a core. Its time is the least of a few.
"""

import argparse
import functools
import itertools
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import pretraining
from benchmarks.report import table
from benchmarks.rounds import machine, seconds
from benchmarks.workload import Sentences
from elmo_plugin.bilm.kernels import chooser, int8, processors
from elmo_plugin.bilm.kernels.int8_linear import Int8Linear
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.processors import IN_CPP, NEVER, Kernels, Row

# The Original's shapes, `(input_dim, output_dim)`; input products have many rows.
STATE, NARROW = (512, 16384), (4096, 512)
ROWS = (1, 8, 16, 32, 64)
INPUT_ROWS = (24, 64, 128)
WEIGHTS = 4
SECONDS = 0.15
# Layers, their steps, and how often each is measured.
LAYERS, STEPS, TURNS = 2, 8, 3
TURNS_OF_TRAINING = 6
LIBRARIES, CPP = "libraries", "C++"
# Sentences that run together, where no precision may be slower than float32, but for this factor.
CASES = (1, 64)
TOLERANCE = 1.05

# Kernels by how exact they are; what is more exact may serve what is less.
EXACT = ("onednn", "mkl")
HALVES = ("fbgemm_float16", "two_digits")
BFLOAT16 = (*HALVES, "steady_bfloat16")
# Types of a layer's weights in C++ that may serve a `dtype`.
IN_PLACE_OF = {
    "float32": ("float32",),
    "float16": ("float16", "int16"),
    "bfloat16": ("bfloat16", "float16", "int16"),
    "int8": ("int8",),
}
INT8 = {"int8 FBGEMM": int8.FbgemmInt8Kernel, "int8 oneDNN": int8.OneDnnInt8Kernel}

Times = dict[str, dict[str, float]]


def kernels(weights: list[torch.Tensor]) -> dict[str, list[Any]]:
    """Each kernel that works here, with each weight."""
    found: dict[str, list[Any]] = {}
    for name, make in chooser.LINEAR_KERNELS.items():
        if chooser.kernel_works(name, weights[0]):
            found[name] = [make(weight) for weight in weights]
    for name, kind in INT8.items():
        if int8.works(kind):
            found[name] = [Int8Linear(weight, kind, kind, 0) for weight in weights]
    return found


def microseconds(products: list[Any], rows: torch.Tensor, clock: Callable[[], float]) -> float:
    """Of one product, the least of a few."""
    best = float("inf")
    for product in products:  # some make what they need when it is first needed
        product(rows)
    begun = clock()
    while clock() - begun < SECONDS or best == float("inf"):
        start = clock()
        for product in products:
            product(rows)
        best = min(best, clock() - start)
    return 1e6 * best / len(products)


@torch.inference_mode()
def measure(clock: Callable[[], float] = time.perf_counter) -> dict[str, Times]:
    """Microseconds by use, kernel and number of rows."""
    torch.manual_seed(0)
    found: dict[str, Times] = {"input": {}, "state": {}, "narrow": {}}
    for (input_dim, output_dim), uses in (
        (STATE, {"state": ROWS, "input": INPUT_ROWS}),
        (NARROW, {"narrow": ROWS}),
    ):
        weights = [torch.randn(output_dim, input_dim) for _ in range(WEIGHTS)]
        for name, products in kernels(weights).items():
            for use, counts in uses.items():
                times = found[use].setdefault(name, {})
                for count in counts:
                    rows = torch.randn(count, input_dim)
                    times[str(count)] = round(microseconds(products, rows, clock), 1)
    return found


@torch.inference_mode()
def measure_steps(clock: Callable[[], float] = time.perf_counter) -> Times:
    """
    Microseconds of a step of a frozen layer, its input's products with it, by `dtype` and by what
    takes it, and by the number of sentences.
    """
    torch.manual_seed(0)
    (dim, gates), (width, _) = STATE, NARROW

    def weight(*shape: int) -> torch.Tensor:
        return 0.05 * torch.randn(shape)

    weights = [
        LstmWeights(weight(gates, dim), weight(gates, dim), weight(gates), weight(dim, width), 3, 3)
        for _ in range(LAYERS)
    ]
    layers = {}
    for in_cpp, names in ((False, tuple(IN_PLACE_OF)), (True, IN_CPP)):
        for name in names:
            dtype = None if name == "float32" else name
            if in_cpp and chooser.compiled_dtype(weights[0], dtype, in_cpp) is None:
                continue
            made = [chooser.frozen_lstm(one, dtype, in_cpp) for one in weights]
            layers[f"{name}, {CPP if in_cpp else LIBRARIES}"] = made
    found: Times = {name: {} for name in layers}
    for count in ROWS:
        inputs = torch.randn(STEPS * count, dim)
        states = torch.randn(count, dim), torch.randn(count, width)
        # In turn, since the machine's speed changes.
        for name, several in [*layers.items()] * TURNS:
            steps = [functools.partial(_steps, one, [count] * STEPS, states) for one in several]
            least = microseconds(steps, inputs, clock) / STEPS
            found[name][str(count)] = round(min(least, found[name].get(str(count), least)), 1)
    return found


def _steps(layer: Any, sizes: list[int], states: Any, inputs: torch.Tensor) -> Any:
    return layer(inputs, sizes, *states)


def case(found: dict[str, Times], kernels: Kernels, count: int) -> float:
    """Microseconds of the products of a step of so many sentences, and of its input's."""
    step = found["state"][kernels.state][str(count)] + found["narrow"][kernels.narrow][str(count)]
    # Of one sentence the input products are many steps' at once.
    return step if count == 1 else step + found["input"][kernels.input][str(count)]


def score(found: dict[str, Times], kernels: Kernels, against: Kernels) -> float:
    """One sentence counts as much as 64; infinite where one of them is slower than `against`."""
    ratios = [case(found, kernels, count) / case(found, against, count) for count in CASES]
    return math.inf if max(ratios) > TOLERANCE else math.prod(ratios)


def compiled_layers(steps: Times) -> dict[str, str]:
    """
    The `dtype`s in which C++ is faster, and for no number of sentences slower, each with the type
    of weights in which it is the fastest.
    """
    found = {}
    for dtype, types in IN_PLACE_OF.items():
        libraries = steps.get(f"{dtype}, {LIBRARIES}", {})
        best = 1.0
        for weights in types:
            in_cpp = steps.get(f"{weights}, {CPP}")
            if in_cpp is None:
                continue
            ratios = [in_cpp[str(count)] / libraries[str(count)] for count in CASES]
            if max(ratios) <= TOLERANCE and math.prod(ratios) < best:
                best = math.prod(ratios)
                found[dtype] = weights
    return found


def choose(found: dict[str, Times], steps: Times, training: dict[str, float]) -> Row:
    """The row for these times; `steps` are empty where they were not measured."""
    onednn = Kernels("onednn_uncopied", "onednn", "onednn")

    def best(candidates: dict[str, tuple[str, ...]], against: Kernels) -> Kernels:
        known = (
            [name for name in candidates[use] if name in found[use]] for use in Kernels._fields
        )
        choices = [Kernels(*names) for names in itertools.product(*known)]
        return min(choices, key=lambda kernels: score(found, kernels, against))

    # Input weights stay where they are.
    float32 = best({"input": ("onednn_uncopied",), "state": EXACT, "narrow": EXACT}, onednn)
    lower = {
        names: best({use: (getattr(float32, use), *names) for use in Kernels._fields}, float32)
        for names in (HALVES, BFLOAT16)
    }
    few_rows = tuple(_int8_many(found[use]) for use in ("state", "narrow"))
    step = min(training, key=lambda name: training[name])
    return Row(
        float32,
        lower[HALVES],
        lower[BFLOAT16],
        (few_rows[0], few_rows[1]),
        "bfloat16" if step == "bfloat16" else None,
        training["float32, oneDNN"] < training["float32, MKL"],
        compiled_layers(steps),
    )


def _int8_many(times: Times) -> int:
    """From how many rows on oneDNN is the faster one, each time, and not by chance."""
    few, many = (times.get(name) for name in INT8)
    if few is None or many is None:
        return NEVER
    slower = [int(count) for count in few if TOLERANCE * many[count] > few[count]]
    return min((int(count) for count in few if int(count) > max(slower, default=0)), default=NEVER)


def training_seconds(clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Of a step of pretraining, the least of a few."""
    batch = pretraining.batch_of(
        Sentences(), pretraining.BATCH_SIZE, pretraining.NUM_STEPS, pretraining.NUM_WORDS
    )
    models = {dtype: pretraining.model(False, dtype) for dtype in (None, "bfloat16")}
    found: dict[str, float] = {}
    # In turn, since the machine's speed changes.
    for name, dtype, processor in TURNS_OF_TRAINING * (
        ("float32, oneDNN", None, "safe"),
        ("float32, MKL", None, "avx512_bf16_slow"),
        ("bfloat16", "bfloat16", "safe"),
    ):
        with processors.use_processor(processor):
            step = functools.partial(pretraining.step, models[dtype], batch)
            found[name] = round(min(seconds(step, clock), found.get(name, math.inf)), 4)
    return found


def report(found: dict[str, Any]) -> str:
    """Tables of microseconds."""
    lines = [f"{found['machine']['processor']}, {found['machine']['threads']} threads; "
             f"row here: {found['row']}", ""]  # fmt: skip
    for use, times in (*found["microseconds"].items(), ("step", found["steps"])):
        counts = list(next(iter(times.values())))
        rows = [[name, *(f"{each[count]:.0f}" for count in counts)] for name, each in times.items()]
        lines += table([f"{use}, µs", *(f"{count} rows" for count in counts)], rows)
    steps = ", ".join(f"{name} {value:.3f} s" for name, value in found["training"].items())
    return "\n".join([*lines, f"A step of pretraining: {steps}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", type=Path, help="where to keep the figures, as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    times, steps, training = measure(), measure_steps(), training_seconds()
    found = {
        "row": processors.processor(),
        "machine": machine(),
        "microseconds": times,
        "steps": steps,
        "training": training,
    }
    print(report(found))
    print(f'    "NAME": {choose(times, steps, training)},')
    if arguments.write is not None:
        arguments.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
