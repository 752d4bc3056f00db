"""
Held-out perplexity of an exported biLM, domain by domain.

    python -m elmo_plugin export-bilm RUN EXPORTED
    python benchmarks/heldout_perplexity.py EXPORTED 'heldout/modern-*.txt' 'heldout/novel-*.txt'

`EXPORTED` has `options.json`, `weights.hdf5`, `softmax.hdf5` and `vocabulary.txt`, as a finished
run leaves them too. Full softmax, state carried, both directions, as `allennlp evaluate` gives it.
Each path or glob is a domain, read in one go: `benchmarks/kneser_ney.py` with this `--vocabulary`
and `--heldout` gives the figure to compare with. Prints JSON.

`--start RUN/checkpoint_e1_b0.th` begins with the state in which a run's streams stood, as many as
`--batch-size`, and not at zero.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.evaluation import figures, sum_of_losses
from elmo_plugin.bilm.training.export import (
    OPTIONS_FILE,
    SOFTMAX_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    load_softmax,
)
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.text import Text
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, find_text_files
from elmo_plugin.bilm.use.elmo import load_bilm

NUM_STEPS = 20


def load(exported: Path, vocabulary: WordVocabulary) -> LanguageModel:
    """The biLM and its softmax, exact products."""
    bilm = load_bilm(str(exported / OPTIONS_FILE), str(exported / WEIGHTS_FILE))
    softmax = WordSoftmax(len(vocabulary), bilm.options.projection_dim)
    load_softmax(softmax, exported / SOFTMAX_FILE)
    return LanguageModel(bilm, softmax, dropout=0.0)


def measure(
    model: LanguageModel,
    vocabulary: WordVocabulary,
    pattern: str,
    batch_size: int,
    checkpoint: Path | None,
) -> dict[str, int | float]:
    """Of the files of one pattern, in their order."""
    start = time.perf_counter()
    text = Text(find_text_files(pattern), batch_size, NUM_STEPS, shuffle=False)
    states = None
    if checkpoint is not None:
        one, other = torch.load(checkpoint, map_location="cpu", weights_only=True)["states"]
        states = LstmState(*one), LstmState(*other)
    forward, backward, num_batches = sum_of_losses(model, text.pairs(vocabulary), states)
    found = figures(forward / num_batches, backward / num_batches, sampled=False)
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
    vocabulary = WordVocabulary.from_file(args.exported / VOCABULARY_FILE)
    model = load(args.exported, vocabulary)
    domains = {
        pattern: measure(model, vocabulary, pattern, args.batch_size, args.start)
        for pattern in args.heldout
    }
    json.dump({"num_words": len(vocabulary), "domains": domains}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
