"""
Speed of a training step of our `alternating_lstm` and `packed_gru` and of AllenNLP's encoders.

    OMP_NUM_THREADS=2 python benchmarks/encoders.py

`alternating_lstm` has the sizes of the paper's SRL model with ELMo. `packed_gru` has the sizes of
the first encoder in the paper's SQuAD model with ELMo, and of the first two encoders in
experiments/table1/configs. Weights are float32. A step sets gradients to zero and runs the forward
and the backward pass. A round is one step of each encoder; the table has medians over `--rounds`.
"""

import argparse
import random
import statistics
import time
from typing import Any, NamedTuple

import torch
from allennlp.modules.seq2seq_encoders import PytorchSeq2SeqWrapper
from allennlp.modules.seq2seq_encoders.pytorch_seq2seq_wrapper import (
    GruSeq2SeqEncoder,
    StackedAlternatingLstmSeq2SeqEncoder,
)

from elmo_plugin.bilm.kernels.machine import keep_freed_memory
from elmo_plugin.modules.alternating_lstm import AlternatingLstmSeq2SeqEncoder
from elmo_plugin.modules.packed_gru import PackedGruSeq2SeqEncoder

ALTERNATING_LSTM = StackedAlternatingLstmSeq2SeqEncoder, AlternatingLstmSeq2SeqEncoder
GRU = GruSeq2SeqEncoder, PackedGruSeq2SeqEncoder


class Case(NamedTuple):
    """Two encoder classes to compare, AllenNLP's first, and their arguments."""

    name: str
    encoders: tuple[type, type]
    batch_size: int
    num_tokens: int
    sizes: dict[str, Any]


def gru_case(name: str, batch_size: int, num_tokens: int, input_size: int, hidden: int) -> Case:
    sizes = {"input_size": input_size, "hidden_size": hidden, "bidirectional": True}
    return Case(name, GRU, batch_size, num_tokens, sizes)


CASES = [
    Case(
        "alternating_lstm, SRL",
        ALTERNATING_LSTM,
        80,
        30,
        {
            "input_size": 1124,
            "hidden_size": 300,
            "num_layers": 8,
            "recurrent_dropout_probability": 0.1,
            "use_input_projection_bias": False,
        },
    ),
    gru_case("packed_gru, SQuAD", 45, 150, 400 + 1024, 100),
    gru_case("packed_gru, stand-in, passages", 20, 150, 150, 50),
    gru_case("packed_gru, stand-in, questions", 20, 12, 150, 50),
]


def seconds(encoder: PytorchSeq2SeqWrapper, inputs: torch.Tensor, mask: torch.Tensor) -> float:
    encoder.zero_grad()
    start = time.perf_counter()
    encoder(inputs, mask).sum().backward()
    return time.perf_counter() - start


def compare(case: Case, lengths: list[int], rounds: int) -> tuple[float, ...]:
    torch.manual_seed(0)
    stock, ours = (kind(**case.sizes) for kind in case.encoders)
    ours.load_state_dict(stock.state_dict())
    shape = case.batch_size, case.num_tokens, case.sizes["input_size"]
    inputs = torch.randn(shape, requires_grad=True)
    mask = torch.arange(case.num_tokens).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)
    for encoder in (stock, ours):
        seconds(encoder, inputs, mask)
    times = [[seconds(encoder, inputs, mask) for encoder in (stock, ours)] for _ in range(rounds)]
    return tuple(statistics.median(column) for column in zip(*times, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    keep_freed_memory()  # measure with the setting of this package's commands
    rng = random.Random(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {rounds} rounds")
    for case in CASES:
        most, least = case.num_tokens, case.num_tokens // 3
        varied = [most] + [rng.randint(least, most) for _ in range(case.batch_size - 1)]
        for name, lengths in (
            (f"{least} to {most}", varied),
            (f"all {most}", [most] * case.batch_size),
        ):
            stock, ours = compare(case, lengths, rounds)
            print(
                f"{case.name}, lengths {name}: stock {stock:.4f} s, ours {ours:.4f} s, "
                f"ratio {stock / ours:.2f}"
            )


if __name__ == "__main__":
    main()
