"""
Held-out perplexity of an exported biLM, for each domain of text.

    python -m elmo_plugin export-bilm RUN EXPORTED
    python benchmarks/heldout_perplexity.py EXPORTED 'heldout/modern-*.txt' 'heldout/novel-*.txt'

`EXPORTED` is a folder with `options.json`, `weights.hdf5`, `softmax.hdf5` and `vocabulary.txt`,
such as that of a finished run. The program prints JSON with the perplexity of each direction,
computed with the full softmax. The LSTM state is carried from batch to batch. Each path or glob is
a domain. To compare, run `benchmarks/kneser_ney.py` with the same `--vocabulary` and `--heldout`.

By default the LSTM state starts at zero. `--start RUN/checkpoint_e1_b0.th` starts with the state
stored in a run's checkpoint; `--batch-size` must then be that of the run.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.pretraining.language_model import LanguageModel, loss_metrics, sum_of_losses
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary, find_text_files
from elmo_plugin.bilm.use.scoring import load_with_softmax

NUM_STEPS = 20


def measure(
    model: LanguageModel,
    vocabulary: WordVocabulary,
    pattern: str,
    batch_size: int,
    checkpoint: Path | None,
) -> dict[str, int | float]:
    """Return perplexities, and the seconds taken, for the files of a path or glob `pattern`."""
    start = time.perf_counter()
    text = StreamLoader(find_text_files(pattern), batch_size, NUM_STEPS, shuffle=False)
    states = None
    if checkpoint is not None:
        one, other = torch.load(checkpoint, map_location="cpu", weights_only=True)["states"]
        states = LstmState(*one), LstmState(*other)
    forward, backward, num_batches = sum_of_losses(model, text.pairs(vocabulary), states)
    found = loss_metrics(forward / num_batches, backward / num_batches, sampled=False)
    return {
        "heldout_tokens": num_batches * batch_size * NUM_STEPS,
        "forward_perplexity": round(found["forward_perplexity"], 2),
        "backward_perplexity": round(found["backward_perplexity"], 2),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("exported", type=Path, help="folder of an exported biLM")
    parser.add_argument("heldout", nargs="+", help="paths or globs of held-out text, a domain each")
    parser.add_argument("--batch-size", type=int, default=64, help="streams (default: 64)")
    parser.add_argument("--start", type=Path, help="a run's checkpoint, whose state comes first")
    parser.add_argument("--threads", type=int, help="PyTorch's threads")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    bilm, softmax, vocabulary = load_with_softmax(args.exported)
    model = LanguageModel(bilm, softmax, dropout=0.0)
    domains = {
        pattern: measure(model, vocabulary, pattern, args.batch_size, args.start)
        for pattern in args.heldout
    }
    json.dump({"num_words": len(vocabulary), "domains": domains}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
