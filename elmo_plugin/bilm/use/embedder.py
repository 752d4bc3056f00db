"""`ElmoEmbedder`: a biLM's layers for tokenized sentences, as NumPy arrays or in an HDF5 file."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import IO, Any

import numpy
import torch
from tqdm import tqdm

from elmo_plugin.bilm.extraction.extract import Extraction, extract
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.stderr import stderr
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput
from elmo_plugin.bilm.model.tokens import check_batch, tokenized_sentence
from elmo_plugin.bilm.use.layer_cache import LayerCache, check_cacheable

DEFAULT_BATCH_SIZE = 64
# Functions that reduce the vectors of a sentence's tokens to one vector.
POOLINGS: dict[str, Any] = {"mean": numpy.mean, "max": numpy.max}


class ElmoEmbedder:
    """
    Frozen biLM for interactive use, with the methods and shapes of AllenNLP 0.9's `ElmoEmbedder`.

    A sentence is a list of tokens; with a `tokenizer` it may also be a string. Threads may share an
    embedder unless its state is `"carry"`. Its `name` is that of the biLM or its file.

    # Parameters

    options_file, weight_file : `Any`, optional (default = the embedded biLM)
        See `Elmo`.
    cuda_device : `int`, optional (default = `-1`)
        Number of the GPU; negative for the CPU.
    state : `str`, optional (default = `"primed"`)
        `"primed"`: a sentence always has the same vectors. `"carry"`: the LSTM state continues from
        call to call, as in AllenNLP. See `BiLm`.
    dtype, cache : `Optional[str]`, optional (default = `None`)
        See `Elmo`. The vectors are float32 with any `dtype`.
    tokenizer : `Optional[Callable[[str], Iterable[Any]]]`, optional (default = `None`)
        Function that splits a string into tokens, such as `str.split` or a spaCy pipeline.

    # Raises

    `FileNotFoundError`, `ValueError`
        If the files do not exist or do not hold a biLM, or `cache` is given with `"carry"`.
    """

    def __init__(
        self,
        options_file: str | Path | dict[str, Any] | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
        state: str = "primed",
        dtype: str | None = None,
        cache: str | None = None,
        tokenizer: Callable[[str], Iterable[Any]] | None = None,
    ) -> None:
        if cache is not None:
            check_cacheable(cache, state)
        bilm = load_or_embedded("ElmoEmbedder", options_file, weight_file, state, dtype)
        named = options_file if isinstance(options_file, (str, Path)) else weight_file
        self.name = "embedded" if options_file is None and named is None else str(named)
        self.place(bilm, cuda_device, cache, tokenizer)

    def __repr__(self) -> str:
        width, state = self.elmo_bilm.get_output_dim(), self.elmo_bilm.state
        return f"{type(self).__name__}({self.name!r}, embedding_dim={width}, state={state!r})"

    def place(
        self,
        bilm: BiLm,
        cuda_device: int,
        cache: str | None = None,
        tokenizer: Callable[[str], Iterable[Any]] | None = None,
    ) -> None:
        """
        Use a loaded biLM in this embedder: move it to the device and set it to evaluation mode. The
        other arguments are those of the constructor.
        """
        self.elmo_bilm = bilm.eval()
        self.cuda_device = cuda_device
        if cuda_device >= 0:
            self.elmo_bilm.cuda(cuda_device)
        self.tokenizer = tokenizer
        self._cache = None if cache is None else LayerCache(cache)

    def batch_to_embeddings(self, batch: Iterable[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Compute the layers of a batch of sentences without their boundaries, shape `(batch_size,
        mixture_size, num_tokens, embedding_dim)`, zero at padding; and the mask, bool, shape
        `(batch_size, num_tokens)`.
        """
        ids = self.elmo_bilm.batch_to_ids(list(self._tokenized(batch))).to(self.elmo_bilm.device)
        with torch.no_grad():
            if self._cache is None:
                output = self.elmo_bilm(ids)
            else:
                output = self._cache.layers(self.elmo_bilm, ids)
        layers, mask, _ = BiLmOutput.of(output).tokens()
        return torch.stack(layers, dim=1), mask

    def embed_sentence(self, sentence: Any) -> numpy.ndarray:
        """
        Compute the layers of one sentence, which may be empty: float32, shape `(mixture_size,
        num_tokens, embedding_dim)`.
        """
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Iterable[Any]) -> list[numpy.ndarray]:
        """
        Compute the layers of sentences, in one batch: for each sentence as `embed_sentence`.

        Raise a `ValueError` if a sentence is a string and there is no tokenizer, or a token has no
        text; see `elmo_plugin.batch_to_ids`.
        """
        sentences = list(self._tokenized(batch))
        # As in AllenNLP, a single empty sentence does not change a carried state.
        if len(sentences) < 2 and not any(sentences):
            shape = (self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim())
            return [numpy.zeros(shape, numpy.float32) for _ in sentences]
        layers, _ = self.batch_to_embeddings(sentences)
        arrays = layers.float().cpu().numpy()
        return [
            numpy.ascontiguousarray(array[:, : len(sentence)])
            for array, sentence in zip(arrays, sentences)
        ]

    def _tokenized(self, sentences: Iterable[Any]) -> Iterator[list[str]]:
        check_batch(sentences)
        for number, sentence in enumerate(sentences):
            if isinstance(sentence, str) and self.tokenizer is not None:
                sentence = self.tokenizer(sentence)
            try:
                yield tokenized_sentence(sentence, number)
            except ValueError as error:
                hint = ""
                if isinstance(sentence, str):
                    hint = "; or give ElmoEmbedder a tokenizer, such as str.split"
                elif self.tokenizer and not isinstance(sentence, Iterable):
                    hint = " or a string"
                raise ValueError(f"{error}{hint}") from None

    def embed_sentences(
        self,
        sentences: Iterable[Any],
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
    ) -> Iterator[numpy.ndarray]:
        """
        Yield the layers of each sentence as from `embed_batch`, in order, batch by batch.

        Sentences are read lazily, `batch_size` at a time; an error in one is raised when its batch
        is reached. `progress` shows a progress bar on stderr.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
        total = len(sentences) if isinstance(sentences, Sized) else None
        iterator = self._tokenized(sentences)
        batches = iter(lambda: list(itertools.islice(iterator, batch_size)), [])
        layers = itertools.chain.from_iterable(map(self.embed_batch, batches))
        if progress:
            layers = iter(tqdm(layers, total=total, unit=" sentences", file=stderr()))
        return layers

    def sentence_vectors(
        self,
        sentences: Iterable[Any],
        pooling: str = "mean",
        batch_size: int = DEFAULT_BATCH_SIZE,
        progress: bool = False,
        layers: Sequence[int] | None = None,
    ) -> numpy.ndarray:
        """
        Return one vector per sentence: the mean of the layers, pooled over the tokens.

        `pooling` is `"mean"` or `"max"`. `layers` are the numbers of the layers to take the mean
        of, 0 for the token layer; all if not given. `batch_size` and `progress` are those of
        `embed_sentences`. The result is float32, shape `(num_sentences, embedding_dim)`, zero for a
        sentence without tokens. Raise a `ValueError` if there is no such pooling or layer.
        """
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}, expected one of {list(POOLINGS)}")
        known = range(self.elmo_bilm.num_layers)
        chosen = list(known if layers is None else layers)
        if not chosen or not set(chosen) <= set(known):
            raise ValueError(f"layers are {layers!r}, expected numbers from 0 to {known[-1]}")
        nothing = numpy.zeros(self.elmo_bilm.get_output_dim(), numpy.float32)
        vectors = [
            POOLINGS[pooling](array[chosen].mean(axis=0), axis=0) if array.shape[1] else nothing
            for array in self.embed_sentences(sentences, batch_size, progress)
        ]
        return numpy.stack(vectors) if vectors else numpy.zeros((0, len(nothing)), numpy.float32)

    def embed_texts(
        self, texts: Iterable[Any], pooling: str = "mean", layers: Any = None, **options: Any
    ) -> numpy.ndarray:
        """
        Return one vector per text as `sentence_vectors` does, whose `options` are the others.

        A text is a string, split by this embedder's tokenizer or else at white space; or a list of
        tokens.
        """
        check_batch(texts)
        split = self.tokenizer or str.split
        tokens = [split(text) if isinstance(text, str) else text for text in texts]
        return self.sentence_vectors(tokens, pooling, layers=layers, **options)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """
        Write the layers of every line to an HDF5 file; the line has white space between tokens. See
        `extract` for the file's content and for more options, and `Extraction` for these;
        `output_format` is its `layers`. An existing file is replaced once the new one is complete.
        """
        wanted = Extraction(
            layers=output_format,
            batch_size=batch_size,
            forget_sentences=forget_sentences,
            use_sentence_keys=use_sentence_keys,
        )
        extract(self.elmo_bilm, input_file, output_file_path, wanted, force=True)


def load_or_embedded(
    caller: str,
    options_file: str | Path | dict[str, Any] | None,
    weight_file: str | Path | None,
    state: str,
    dtype: str | None = None,
) -> BiLm:
    """
    Load a biLM. If no file is given, load the embedded biLM, and report that on stderr in a line
    that begins with `caller`.
    """
    if options_file is None and weight_file is None:
        print(
            f"{caller}: no options_file and weight_file given, using the embedded biLM",
            file=stderr(),
        )
    return load_bilm(options_file, weight_file, state=state, dtype=dtype, default="embedded")
