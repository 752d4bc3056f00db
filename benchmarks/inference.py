"""Speed of AllenNLP's frozen ELMo and of ours with the same weights, in alternating rounds."""

import functools
import statistics
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.limit import Machine, both, lstm_work, token_work
from benchmarks.rounds import Clock, in_turn, seconds
from benchmarks.workload import Sentences
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import Packing
from elmo_plugin.bilm.use.elmo import Elmo

DTYPES = (None, "float16", "bfloat16", "int8")


class Comparison:
    """Benchmark of AllenNLP's ELMo, ours in each dtype, and ours without C++ kernels (`public`)."""

    def __init__(self, files: tuple[str, str], machine: Machine) -> None:
        self.machine = machine
        self.stock = elmo_of("stock", files)
        self.ours = {dtype or "float32": ours(files, dtype) for dtype in DTYPES}
        self.public = ours(files, None)
        without_library(self.public, Sentences().batch(2))  # the first use packs the weights

    def run(
        self, batch_size: int, rounds: int, clock: Clock, public: bool, stock: bool = True
    ) -> dict[str, Any]:
        """
        Measure one batch size. Without `stock`, our ELMo in float32 takes the place of AllenNLP's.
        With `public`, also measure our ELMo with PyTorch's operators only.

        Return the dictionary of `in_turn`; its ratios are speedups over AllenNLP's ELMo. It also
        has, for each candidate, the fraction `share` of the speed limit (see `benchmarks.limit`),
        and `largest_deviation`: the largest deviation of each dtype's vectors from AllenNLP's.
        """
        sentences = Sentences(seed=batch_size)
        batch = sentences.batch(batch_size)
        exact = mix(self.stock if stock else self.ours["float32"], batch)
        deviations = {name: float((mix(elmo, batch) - exact).abs().max())
                      for name, elmo in self.ours.items()}  # fmt: skip
        limits: dict[str, list[dict[str, float]]] = {}
        flops: list[float] = []

        def candidates() -> dict[str, Callable[[], Any]]:
            tokens = sentences.tokens(batch_size)
            batch = batch_to_ids(tokens)
            works = {"stock": lambda: mix(self.stock, batch)} if stock else {}
            warm, cold = self._works(tokens)
            flops.append(cold.flops)
            for name, elmo in self.ours.items():
                # The run "cold" fills the cache of token vectors for the run "warm".
                elmo._elmo_lstm.char_cnn.forget_token_vectors()
                for temperature, work in (("cold", cold), ("warm", warm)):
                    full_name = f"{name} {temperature}"
                    works[full_name] = lambda elmo=elmo: mix(elmo, batch)
                    limits.setdefault(full_name, []).append(self.machine.limit(work, name))
            if public:
                self.public._elmo_lstm.char_cnn.forget_token_vectors()
                works["float32 cold, without the library"] = lambda: without_library(
                    self.public, batch
                )
            return works

        found = in_turn(candidates, rounds, clock)
        for name, each in limits.items():
            limit = {key: statistics.median(one[key] for one in each) for key in each[0]}
            one = found["candidates"][name]
            one.update(limit=limit, share=limit["limit"] / one["seconds"])
            one["share_at_most"] = limit["limit"] / limit["in_turn"]
        if stock:
            rate = 1e-9 * statistics.median(flops) / found["candidates"]["stock"]["seconds"]
            found["stock_gflops"] = rate
        return {**found, "largest_deviation": deviations}

    def _works(self, tokens: list[list[str]]) -> tuple[Any, Any]:
        """Return two `Work` counts of a batch: one with all token vectors cached, one with none."""
        options = self.ours["float32"]._elmo_lstm.options
        warm = lstm_work(options, [len(words) + 2 for words in tokens])
        return warm, both(warm, token_work(options, [word for words in tokens for word in words]))

    def lstm_rate(self, batch_size: int, rounds: int, clock: Clock) -> dict[str, Any]:
        """
        Time the LSTM layers alone in float32. Return the result of `in_turn` with their `gflops`,
        and `share_of_torch.mm`: these divided by the rate of `torch.mm` in the same rounds.
        """
        bilm = self.ours["float32"]._elmo_lstm
        lengths = torch.tensor([len(words) for words in Sentences().tokens(batch_size)])
        packing = Packing(lengths + 2, int(lengths.max()) + 2)
        options = bilm.options
        rows = torch.randn(sum(packing.batch_sizes), options.projection_dim)
        start = bilm.lstm.initial_state(batch_size)

        @torch.no_grad()
        def both_directions() -> None:
            for direction in ("forward", "backward"):
                bilm.lstm.stack(direction, rows, packing.batch_sizes, start)

        both_directions()
        found = in_turn(lambda: {"LSTM": both_directions}, rounds, clock)
        weights = options.cell_size * options.projection_dim * (4 + 4 + 1)
        gflops = 2e-9 * weights * 2 * options.num_layers * len(rows)
        rate = gflops / found["candidates"]["LSTM"]["seconds"]
        found["gflops"] = rate
        found["share_of_torch.mm"] = rate / found["torch.mm_gflops"]["median"]
        return found


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


def preparation(files: tuple[str, str], clock: Clock) -> list[dict[str, Any]]:
    """Return the seconds of the first batch, which packs weights, and the second, by dtype."""
    found = []
    for dtype in DTYPES:
        work = functools.partial(mix, ours(files, dtype), Sentences().batch(1))
        first, later = (seconds(work, clock) for _ in range(2))
        found.append({"dtype": dtype or "float32", "first": first, "later": later})
    return found
