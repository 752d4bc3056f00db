"""
For .ci/check_wheel, in an environment without AllenNLP.

    python -I smoke_core.py                     embeds a sentence by every public way
    python -I smoke_core.py TEXT LAYERS.hdf5    the file has what `ElmoEmbedder` gives for each line
"""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import h5py
import numpy
import torch

import elmo_plugin
from elmo_plugin import Elmo, ElmoEmbedder, ElmoHub, batch_to_ids

ABSENT = ("allennlp", "spacy", "transformers", "matplotlib", "cached_path", "_jsonnet")
SENTENCE = ["Miss", "Eyre", "left", "Lowton", "on", "Tuesday", "."]


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """The default biLM's vectors are the same by every way."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def main() -> None:
    """Runs the checks."""
    assert [name for name in ABSENT if importlib.util.find_spec(name)] == []
    assert Path(elmo_plugin.__file__).is_relative_to(sys.prefix), elmo_plugin.__file__
    assert importlib.metadata.version("elmo_plugin") == elmo_plugin.__version__
    embedder = ElmoEmbedder()
    if sys.argv[1:]:
        text, file = sys.argv[1:]
        lines = Path(text).read_text("utf-8").splitlines()
        with h5py.File(file) as layers:
            for number, line in enumerate(lines):
                expected = embedder.embed_sentence(line.split())
                close(torch.from_numpy(layers[str(number)][:]), torch.from_numpy(expected))
        return
    # Shape: (mixture_size, num_tokens, embedding_dim)
    layers = torch.from_numpy(embedder.embed_sentence(SENTENCE))
    assert layers.shape == (3, len(SENTENCE), 512), layers.shape
    assert numpy.isfinite(layers).all()
    # An untrained mix is the average of the layers.
    elmo = Elmo("embedded", num_output_representations=1, dropout=0.0, state="primed").eval()
    close(elmo(batch_to_ids([SENTENCE]))["elmo_representations"][0][0], layers.mean(dim=0))
    outputs = ElmoHub("embedded").eval()([" ".join(SENTENCE)])
    close(outputs["elmo"][0], layers.mean(dim=0))
    close(outputs["lstm_outputs2"][0], layers[2])
    print(f"elmo_plugin {elmo_plugin.__version__}: {tuple(layers.shape)} by every way")


if __name__ == "__main__":
    main()
