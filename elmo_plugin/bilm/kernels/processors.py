"""
Which kernel serves which product on which processor: a table, filled from measurements.

A processor is known by what it can do, never by a measurement at run time: the same machine always
gets the same row, so that results are the same to the bit in every run. `python -m benchmarks.tune`
measures a machine and prints its row; the figures behind these rows are in `benchmarks/products/`.
"""

import functools
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

import torch

# Names one of `ROWS`, in place of what the processor's capability says.
VARIABLE = "ELMO_PLUGIN_PROCESSOR"


class Kernels(NamedTuple):
    """
    Names of linear kernels (`chooser.LINEAR_KERNELS`), for the shapes there are.

    `input`: dozens of rows, wide. `state`: as many rows as there are sentences, wide. `narrow`:
    into an output not wider than `WIDE` times the input.
    """

    input: str
    state: str
    narrow: str


class Row(NamedTuple):
    """
    `float32`, `float16`, `bfloat16`: what serves this `dtype`; kernels that are at least as exact.
    `int8_many`: from how many rows on oneDNN multiplies 8-bit integers, before it FBGEMM: wide,
    narrow. `training_dtype`: in which a step of training is the fastest. `training_onednn`: whether
    oneDNN multiplies float32 in it, or PyTorch's own choice, MKL. `compiled_layers`: the `dtype`s
    whose frozen LSTM layers are faster in C++ than by libraries' products, step by step, and the
    type of their weights there.
    """

    float32: Kernels
    float16: Kernels
    bfloat16: Kernels
    int8_many: tuple[int, int]
    training_dtype: str | None
    training_onednn: bool
    compiled_layers: dict[str, str]


WIDE = 2
NEVER = 1 << 62
# oneDNN's products, a large weight for many rows as it lies.
ONEDNN = Kernels("onednn_uncopied", "onednn", "onednn")
MKL = Kernels("onednn_uncopied", "mkl", "mkl")
# FBGEMM's weights in half precision are half the bytes to read; of many rows two digits of 8 bits
# are faster, and as exact.
HALF = Kernels("two_digits", "fbgemm_float16", "fbgemm_float16")
HALF_STATES = HALF._replace(input="steady_bfloat16")
STEADY_BFLOAT16 = Kernels("steady_bfloat16", "steady_bfloat16", "steady_bfloat16")
# Every `dtype`'s own type of weights; all types for which there are layers in C++.
EACH_IN_CPP = {name: name for name in ("float32", "float16", "bfloat16", "int8")}
IN_CPP = (*EACH_IN_CPP, "int16")

ROWS = {
    # Intel with AMX, measured 2026-11; layers of int8 in C++, which need no AMX, on one of the same
    # speed without.
    "amx": Row(
        MKL,
        HALF,
        STEADY_BFLOAT16,
        (16, 16),
        "bfloat16",
        False,
        {"float32": "float32", "float16": "float16", "int8": "int8"},
    ),
    # AMD EPYC with AVX-512 BF16 and AVX-VNNI, family 26, measured 2026-11. Whole numbers of 16 bits
    # are multiplied faster than halves are widened.
    "avx512_bf16_avx_vnni": Row(
        ONEDNN,
        HALF,
        Kernels("steady_bfloat16", "steady_bfloat16", "fbgemm_float16"),
        (32, 16),
        "bfloat16",
        True,
        {**EACH_IN_CPP, "float16": "int16"},
    ),
    # AMD EPYC with AVX-512 BF16, family 25, measured 2026-11.
    "avx512_bf16": Row(ONEDNN, HALF, HALF_STATES, (NEVER, NEVER), "bfloat16", True, EACH_IN_CPP),
    # Intel with AVX-512 BF16 and without AMX, measured 2026-11: products of bfloat16 take up to
    # twice the time of float32's.
    "avx512_bf16_slow": Row(
        MKL, HALF, HALF, (32, 64), None, False, {**EACH_IN_CPP, "bfloat16": "float16"}
    ),
    # Never measured: what is certain not to be slower than float32.
    "safe": Row(ONEDNN, ONEDNN, ONEDNN, (16, NEVER), None, True, {}),
}

_override: ContextVar[str | None] = ContextVar("processor", default=None)


def processor() -> str:
    """
    The name of this processor's row.

    # Raises

    `ValueError`
        If the environment variable `ELMO_PLUGIN_PROCESSOR` names none.
    """
    name = _override.get() or os.environ.get(VARIABLE)
    if not name:
        return capability()
    if name not in ROWS:
        raise ValueError(f"{VARIABLE} is {name!r}, expected one of {tuple(ROWS)}")
    return name


def row() -> Row:
    """This processor's."""
    return ROWS[processor()]


@contextmanager
def use_processor(name: str) -> Iterator[None]:
    """
    In the block, and in this thread, kernels are chosen as for this processor. What is derived of
    weights already keeps its kernels.

    # Parameters

    name : `str`
        One of `ROWS`.
    """
    token = _override.set(name)
    try:
        processor()
        yield
    finally:
        _override.reset(token)


@functools.cache
def capability() -> str:
    """The name of the row of what this processor can do."""
    # Libraries that were told to use less than there is are other machines.
    if os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("ATEN_CPU_CAPABILITY"):
        return "safe"
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "safe"
    if _has("_is_amx_tile_supported"):
        return "amx"
    if not _has("_is_avx512_bf16_supported"):
        return "safe"
    if vendor() == "AuthenticAMD":
        return "avx512_bf16_avx_vnni" if "avx_vnni" in instructions().split() else "avx512_bf16"
    return "avx512_bf16_slow" if vendor() == "GenuineIntel" else "safe"


def _has(question: str) -> bool:
    """PyTorch keeps these private."""
    ask = getattr(torch.cpu, question, None)
    return ask is not None and bool(ask())


def vendor() -> str:
    """The processor's maker, as x86 processors say it; empty where that is not known."""
    return _cpuinfo("vendor_id")


def model_name() -> str:
    """What the processor is called; where that is not known, what kind it is."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def instructions() -> str:
    """Names of what the processor can do, as Linux has them; empty where that is not known."""
    return _cpuinfo("flags") or _cpuinfo("Features")


def _cpuinfo(key: str) -> str:
    """What Linux says of the first processor; empty where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
