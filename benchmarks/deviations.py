"""
Deviation of lower precision from float32 in each layer of a trained biLM.

    python -m benchmarks.deviations [--options NAME_OR_FILE --weights FILE] [--sentences FILE]

The sentences are in CoNLL columns, with tokens in the first. The LSTM state is zero at the start of
each sentence. The command compares each token's vectors with those in float32, and prints cosines
and deviations by layer.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.report import table
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.characters import batch_to_ids

BATCH_SIZE = 32


def read(path: Path) -> list[list[str]]:
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    sentences = [[line.split()[0] for line in block.splitlines() if line] for block in blocks]
    return [words for words in sentences if words and words[0] != "-DOCSTART-"]


@torch.no_grad()
def layers(options: str, weights: str, dtype: str, sentences: list[list[str]]) -> torch.Tensor:
    """
    Return the layers of all tokens, shape `(mixture_size, num_tokens, embedding_dim)`, without the
    vectors of sentence boundaries.
    """
    bilm = load_bilm(options, weights, dtype=dtype, state="reset").eval()
    found = []
    for start in range(0, len(sentences), BATCH_SIZE):
        output = bilm(batch_to_ids(sentences[start : start + BATCH_SIZE]))
        mask = output["mask"][:, 2:]
        found.append(torch.stack([layer[:, 1:-1][mask] for layer in output["activations"]]))
    return torch.cat(found, dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deviations")
    parser.add_argument("--options", default="embedded")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--sentences", type=Path, default=Path("examples/ner/test.txt"))
    arguments = parser.parse_args()
    sentences = read(arguments.sentences)
    exact = layers(arguments.options, arguments.weights, None, sentences)
    rows = []
    for dtype in ("float16", "bfloat16", "int8"):
        lower = layers(arguments.options, arguments.weights, dtype, sentences)
        for number, (theirs, ours) in enumerate(zip(exact, lower)):
            cosine = torch.cosine_similarity(ours.double(), theirs.double(), dim=-1)
            deviation = (ours - theirs).abs()
            rms = float(theirs.square().mean().sqrt())
            figures = (cosine.min(), cosine.median(), deviation.max(), deviation.mean() / rms)
            names = [dtype, str(number)]
            rows.append([*names, *(f"{float(figure):.6f}" for figure in figures)])
    print(f"{len(sentences)} sentences, {exact.shape[1]} tokens, weights {arguments.options}\n")
    header = ["dtype", "layer", "least cosine", "median", "largest deviation", "mean / rms"]
    print("\n".join(table(header, rows)))


if __name__ == "__main__":
    main()
