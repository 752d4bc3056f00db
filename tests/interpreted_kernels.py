"""Triton kernels that run in its interpreter on the CPU, wherever a GPU would run them."""

import pytest

from elmo_plugin.bilm.kernels.gpu import lstm_fused, triton_kernels


def interpret(monkeypatch, kernels=triton_kernels):
    """Run the kernels of a module on the CPU; return the names of those that were launched."""
    let_reductions_run(monkeypatch)
    from triton.runtime.interpreter import InterpretedFunction

    launched = []

    def kernel(name):
        launched.append(name)
        return InterpretedFunction(getattr(kernels, name))

    monkeypatch.setattr(lstm_fused, "kernel", kernel)
    # What a GPU has in training: one product for both directions of an LSTM, sampled losses.
    monkeypatch.setattr(lstm_fused, "usable", lambda like, dtype, training: training)
    return launched


def let_reductions_run(monkeypatch):
    """Reductions, which Triton would compile; as `InterpretedFunction` they would stay changed."""
    pytest.importorskip("triton", reason="no Triton: PyTorch has it where it has CUDA")
    from triton import language as tl

    for name, combine in (("max", "_elementwise_max"), ("sum", "_sum_combine")):
        reduced_by = getattr(tl.standard, combine)
        monkeypatch.setattr(tl, name, lambda x, axis, by=reduced_by: tl.reduce(x, axis, by))
