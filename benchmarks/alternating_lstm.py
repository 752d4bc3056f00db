"""
The SRL encoder's training step against AllenNLP's, in turn in one process.

    OMP_NUM_THREADS=2 python benchmarks/alternating_lstm.py

The SRL encoder of the paper with ELMo: 80 sentences of up to 30 tokens, 1124 inputs, 8 layers of
300 units, recurrent dropout 0.1, float32. A step is forward, backward and the optimizer's zeroing
of gradients. Each row is the median of `--rounds` rounds; a round runs one step of either encoder.
"""

import argparse
import random
import statistics
import time

import torch
from allennlp.modules.seq2seq_encoders import PytorchSeq2SeqWrapper
from allennlp.modules.seq2seq_encoders.pytorch_seq2seq_wrapper import (
    StackedAlternatingLstmSeq2SeqEncoder,
)

from elmo_plugin.modules.alternating_lstm import AlternatingLstmSeq2SeqEncoder

SIZES = {
    "input_size": 1124,
    "hidden_size": 300,
    "num_layers": 8,
    "recurrent_dropout_probability": 0.1,
    "use_input_projection_bias": False,
}
BATCH_SIZE, NUM_TOKENS = 80, 30


def seconds(encoder: PytorchSeq2SeqWrapper, inputs: torch.Tensor, mask: torch.Tensor) -> float:
    encoder.zero_grad()
    start = time.perf_counter()
    encoder(inputs, mask).sum().backward()
    return time.perf_counter() - start


def compare(lengths: list[int], rounds: int) -> tuple:
    torch.manual_seed(0)
    stock = StackedAlternatingLstmSeq2SeqEncoder(**SIZES)
    ours = AlternatingLstmSeq2SeqEncoder(**SIZES)
    ours.load_state_dict(stock.state_dict())
    inputs = torch.randn(BATCH_SIZE, NUM_TOKENS, SIZES["input_size"], requires_grad=True)
    mask = torch.arange(NUM_TOKENS).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)
    for encoder in (stock, ours):
        seconds(encoder, inputs, mask)
    times = [[seconds(encoder, inputs, mask) for encoder in (stock, ours)] for _ in range(rounds)]
    return tuple(statistics.median(column) for column in zip(*times, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    rng = random.Random(0)
    varied = [NUM_TOKENS] + [rng.randint(10, NUM_TOKENS) for _ in range(BATCH_SIZE - 1)]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {rounds} rounds")
    for name, lengths in (("10 to 30", varied), ("all 30", [NUM_TOKENS] * BATCH_SIZE)):
        stock, ours = compare(lengths, rounds)
        print(
            f"lengths {name:>8}: stock {stock:.3f} s, ours {ours:.3f} s, ratio {stock / ours:.2f}"
        )


if __name__ == "__main__":
    main()
