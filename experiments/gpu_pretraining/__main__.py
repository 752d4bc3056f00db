"""
Pretrain a biLM on one GPU in minutes. Each update is the replay of a CUDA graph.

    sh results/embedded_bilm/prepare.sh MODERN NOVELS TEXT
    python -m experiments.gpu_pretraining TEXT OUT --seconds 535

TEXT has train/*.txt and heldout/*.txt (tokenized sentences, one a line), and vocabulary.txt. The
program writes the biLM and its softmax to OUT, in float16: options.json, weights.hdf5, softmax.hdf5
and vocabulary.txt. It also saves to the same files twice
during the run; each save replaces the one before.
`benchmarks/heldout_perplexity.py OUT GLOB` measures the perplexity in float32.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import torch

from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE
from elmo_plugin.bilm.training.export import export_bilm
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, find_text_files
from experiments.gpu_pretraining import kernels
from experiments.gpu_pretraining.model import GpuLanguageModel
from experiments.gpu_pretraining.streams import (
    MAX_CHARACTERS,
    Streams,
    character_table,
    read_corpus,
)
from experiments.gpu_pretraining.trainer import Trainer, perplexities

HELDOUT = ("heldout/modern-*.txt", "heldout/novel-*.txt")
NUM_STEPS, HELDOUT_BATCH_SIZE = 20, 256
# The learning rate rises linearly for WARM_UP_UPDATES. After CONSTANT_PART of the time, it falls
# along a cosine, down to LEAST_FACTOR of its peak.
WARM_UP_UPDATES, CONSTANT_PART, LEAST_FACTOR = 1000, 0.1, 1e-3
# Parts of the time after which SCORED_BATCHES of each held-out text are scored, and weights saved.
SCORES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SAVES = (0.4, 0.8)
SCORED_BATCHES = 40
# Number of updates between two checks of the loss. Each check waits for the GPU.
UPDATES_AT_ONCE = 20
START = time.monotonic()


def say(text: str) -> None:
    """Print `text` after the number of seconds since the start."""
    print(f"{time.monotonic() - START:7.1f} {text}", flush=True)


class Run:
    """
    A pretraining run.

    # Parameters

    args : `argparse.Namespace`
        Arguments of the command line.

    # Raises

    `OSError`, `ValueError`
        If a file is missing or damaged, or a text is shorter than one batch.
    `RuntimeError`
        If there is no GPU, or no Triton.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.words = words = WordVocabulary.from_file(args.text / "vocabulary.txt")
        paths = find_text_files(args.text / "train" / "*.txt")
        patterns = args.heldout or [str(args.text / pattern) for pattern in HELDOUT]
        heldout = {pattern: find_text_files(pattern) for pattern in patterns}
        options = find_options(args.options)
        device = find_gpu()
        args.out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        self.model = model = GpuLanguageModel(options, len(words)).to(device)
        corpus = read_corpus(words, paths, heldout)
        say(f"{len(corpus.train)} tokens and sentence ends, {len(corpus.types)} types")
        ids = corpus.train.to(device)
        streams = Streams(ids, words, args.batch_size, NUM_STEPS)
        self.heldout = {
            name: Streams(one.to(device), words, HELDOUT_BATCH_SIZE, NUM_STEPS, shuffle=False)
            for name, one in corpus.heldout.items()
        }
        num_characters = min(MAX_CHARACTERS, options.num_characters)
        self.characters = character_table(corpus.types, num_characters).to(device)
        targets = torch.where(ids < len(words), ids, words.unknown_id)
        counts = torch.bincount(targets, minlength=len(words))
        # The backward direction predicts <S> as often as the forward one predicts </S>.
        counts[words.ids[BEGIN_OF_SENTENCE]] = counts[words.ids[END_OF_SENTENCE]]
        shares = (counts.double() / counts.sum()).clamp(min=1e-9)
        with torch.no_grad():
            model.softmax.bias.copy_(shares.log().unsqueeze(1))
        self.trainer = Trainer(model, self.characters, streams, counts)

    def train(self) -> None:
        """Train until the time is up, and save; exit if the loss is not finite."""
        trainer, streams = self.trainer, self.trainer.streams
        if self.characters.is_cuda:
            trainer.capture()
        say(f"{streams.num_batches} updates a pass")
        # The last entry of both lists is never reached.
        scores, saves, shown, number = [*SCORES, 1.0], [*SAVES, 1.0], 0.0, 0
        begin = time.monotonic()
        while (progress := (time.monotonic() - begin) / self.args.seconds) < 1:
            for _ in range(UPDATES_AT_ONCE):
                number += 1
                rate = self.args.learning_rate * learning_rate_factor(progress, number)
                trainer.learning_rate.fill_(rate)
                trainer.step()
            # The first pass has no dropout: all its sentences are new, so it cannot overfit.
            dropout = self.args.dropout if streams.num_passes else 0.0
            self.model.dropout_probability.fill_(dropout)
            loss = trainer.loss.item()
            if not math.isfinite(loss):
                sys.exit(f"error: the loss is {loss} at update {number}, try a smaller rate")
            if progress - shown >= 0.02:
                shown = progress
                say(
                    f"{progress:.0%} update {number} passes {streams.passes:.2f} loss {loss:.3f} "
                    f"gradient {trainer.gradient_norm.item():.2f} "
                    f"types {trainer.num_types.item()} of {trainer.num_slots}"
                )
            if progress >= saves[0]:
                saves = [one for one in saves if one > progress]
                self.save()
            if progress >= scores[0]:
                scores = [one for one in scores if one > progress]
                self.score(SCORED_BATCHES)
        num_tokens = number * streams.batch_size * NUM_STEPS
        say(f"{number} updates, {num_tokens} tokens a direction, {streams.passes:.2f} passes")
        self.save()
        self.score()

    def save(self) -> None:
        """Write the biLM and its softmax to the output folder."""
        bilm, softmax = self.model.to_bilm(), self.model.softmax
        export_bilm(bilm, self.args.out, vocabulary=self.words, softmax=softmax, dtype="float16")
        say(f"saved in {self.args.out}")

    def score(self, max_batches: int | None = None) -> None:
        """Print the forward and the backward perplexity of each held-out text."""
        for name, streams in self.heldout.items():
            forward, backward = perplexities(self.model, self.characters, streams, max_batches)
            say(f"perplexity {forward} {backward} {name}")


def learning_rate_factor(progress: float, number: int) -> float:
    """
    Return the learning rate as a fraction of its peak.

    It warms up over the first updates (`number` is the update's number), stays constant, and then
    falls along a cosine of `progress`, the elapsed fraction of the run.
    """
    fallen = max(0.0, (progress - CONSTANT_PART) / (1 - CONSTANT_PART))
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, fallen)))
    return min(1.0, number / WARM_UP_UPDATES) * max(cosine, LEAST_FACTOR)


def find_gpu() -> torch.device:
    """Return the GPU; raise a `RuntimeError` if there is none, or no Triton."""
    if not torch.cuda.is_available():
        raise RuntimeError("no GPU found: torch.cuda.is_available() is False")
    if kernels.triton is None:
        raise RuntimeError("Triton is not installed: pip install triton")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    say(torch.cuda.get_device_name())
    return torch.device("cuda")


def main() -> None:
    """Parse the arguments and run the pretraining."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("text", type=Path, help="folder that prepare.sh wrote")
    parser.add_argument("out", type=Path, help="folder of the biLM, made if missing")
    parser.add_argument("--seconds", type=float, default=535, help="training time (default: 535)")
    parser.add_argument("--batch-size", type=int, default=512, help="streams (default: 512)")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="peak (default: 0.003)")
    parser.add_argument(
        "--dropout", type=float, default=0.05, help="from the second pass on (default: 0.05)"
    )
    parser.add_argument(
        "--options", default="embedded", help="a biLM's name or options.json (default: embedded)"
    )
    parser.add_argument(
        "--heldout",
        nargs="+",
        metavar="GLOB",
        help=f"held-out texts, each with a perplexity (default: TEXT/{' TEXT/'.join(HELDOUT)})",
    )
    args = parser.parse_args()
    if min(args.seconds, args.batch_size, args.learning_rate) <= 0 or not 0 <= args.dropout < 1:
        parser.error("expected positive numbers, and a dropout of at least 0 and below 1")
    try:
        run = Run(args)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    run.train()


if __name__ == "__main__":
    main()
