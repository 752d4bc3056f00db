"""Speed of AllenNLP's frozen ELMo and of ours with the same weights, in alternating rounds."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.rounds import Clock, counted_flops, in_turn
from benchmarks.workload import Sentences
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.use.elmo import Elmo

DTYPES = (None, "float16", "bfloat16", "int8")
WITHOUT_LIBRARY = "float32 cold, without the library"


class Comparison:
    """Benchmark of AllenNLP's ELMo, ours in each dtype, and ours without C++ kernels."""

    def __init__(self, files: tuple[str, str]) -> None:
        self.stock = elmo_of("stock", files)
        self.ours = {dtype or "float32": ours(files, dtype) for dtype in DTYPES}
        self.plain = ours(files, None)
        without_library(self.plain, Sentences().batch(2))  # the first use packs the weights

    def run(self, batch_size: int, rounds: int, clock: Clock, stock: bool = True) -> dict[str, Any]:
        """
        Measure one batch size. Without `stock`, only our ELMo, and float32 takes the place of
        AllenNLP's.

        Return the dictionary of `in_turn`; its ratios are speedups over AllenNLP's ELMo. It also
        has, for each candidate without cached tokens, its `share`: the products of the plain
        definition over the time, relative to the rate of `torch.mm`; and `largest_deviation`, that
        of each dtype's vectors from AllenNLP's.
        """
        sentences = Sentences(seed=batch_size)
        batch = sentences.batch(batch_size)
        exact = mix(self.stock if stock else self.ours["float32"], batch)
        deviations = {name: float((mix(elmo, batch) - exact).abs().max())
                      for name, elmo in self.ours.items()}  # fmt: skip
        self.ours["float32"]._elmo_lstm.char_cnn.forget_token_vectors()
        flops = counted_flops(lambda: mix(self.ours["float32"], batch)) / num_tokens(batch)
        tokens: list[int] = []

        def candidates() -> dict[str, Callable[[], Any]]:
            batch = sentences.batch(batch_size)
            tokens.append(num_tokens(batch))
            works = {"stock": lambda: mix(self.stock, batch)} if stock else {}
            for name, elmo in self.ours.items():
                # The run "cold" fills the cache of token vectors for the run "warm".
                elmo._elmo_lstm.char_cnn.forget_token_vectors()
                for temperature in ("cold", "warm"):
                    works[f"{name} {temperature}"] = functools.partial(mix, elmo, batch)
            if stock:
                self.plain._elmo_lstm.char_cnn.forget_token_vectors()
                works[WITHOUT_LIBRARY] = functools.partial(without_library, self.plain, batch)
            return works

        found = in_turn(candidates, rounds, clock)
        mean = sum(tokens) / len(tokens)
        for name, one in found["candidates"].items():
            if not name.endswith("warm"):
                rate = found["torch.mm_gflops"]["median"]
                one["share"] = 1e-9 * flops * mean / one["seconds"] / rate
        return {**found, "largest_deviation": deviations}


def num_tokens(batch: torch.Tensor) -> int:
    return int(batch.any(dim=-1).sum())


def ours(files: tuple[str, str], dtype: str | None) -> Elmo:
    return Elmo(*files, 1, dropout=0.0, dtype=dtype).eval()


def elmo_of(which: str, files: tuple[str, str]) -> Any:
    """Return AllenNLP's ELMo for `stock`, or ours with `which` as its dtype."""
    if which != "stock":
        return ours(files, None if which == "float32" else which)
    from allennlp.modules.elmo import Elmo as StockElmo

    return StockElmo(*files, 1, dropout=0.0).eval()


@torch.no_grad()
def mix(elmo: Any, batch: torch.Tensor) -> torch.Tensor:
    elmo._elmo_lstm._elmo_lstm._states = None  # AllenNLP's would continue from its last state
    if hasattr(elmo, "reset_states"):
        elmo.reset_states()
    return elmo(batch)["elmo_representations"][0]


def without_library(elmo: Any, batch: torch.Tensor) -> torch.Tensor:
    """Return what `mix` returns, computed by PyTorch's operators."""
    with library.use_variant(library.NONE):
        return mix(elmo, batch)
