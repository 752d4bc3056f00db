"""`ElmoEmbedder`: a biLM's layers for tokenized sentences, as numpy arrays or in an HDF5 file."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy
import torch

from elmo_plugin.bilm.extraction.extract import Extraction, extract
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.model.bilm import BiLm

DEFAULT_BATCH_SIZE = 64


class ElmoEmbedder:
    """
    Interactive use of a biLM, with the methods and shapes of AllenNLP 0.9's `ElmoEmbedder`.
    Several threads may call one, unless it carries its state.

    # Parameters

    options_file : `Optional[Union[str, Path, dict[str, Any]]]`, optional (default = `None`)
        The biLM's `options.json`: a name (`embedded`, `small`, `medium`, `original`, `5.5B`), a
        path or a URL. A folder or ZIP holds both files, or an ELMoForManyLangs model. With neither
        file given, the embedded biLM is used.
    weight_file : `Optional[Union[str, Path]]`, optional (default = `None`)
        Its `weights.hdf5`; found from a name, folder or ZIP in `options_file` if not given.
    cuda_device : `int`, optional (default = `-1`)
        The GPU's number; negative for the CPU.
    state : `str`, optional (default = `"primed"`)
        `"primed"`: a sentence has the same vectors each time, in any order and batch. `"carry"`:
        the state runs on from call to call, as in AllenNLP. See `BiLm`.

    # Raises

    `FileNotFoundError`, `ValueError`
        If the files do not exist or do not hold the biLM they should.
    """

    def __init__(
        self,
        options_file: str | Path | dict[str, Any] | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
        state: str = "primed",
    ) -> None:
        self.place(load_or_embedded("ElmoEmbedder", options_file, weight_file, state), cuda_device)

    def place(self, bilm: BiLm, cuda_device: int) -> None:
        """The biLM in evaluation mode, on the device."""
        self.elmo_bilm = bilm.eval()
        self.cuda_device = cuda_device
        if cuda_device >= 0:
            self.elmo_bilm.cuda(cuda_device)

    def batch_to_embeddings(
        self, batch: Sequence[Sequence[str]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        # Parameters

        batch : `Sequence[Sequence[str]]`
            Tokenized sentences.

        # Returns

        `tuple[torch.Tensor, torch.Tensor]`
            The layers, shape `(batch_size, mixture_size, num_tokens, embedding_dim)`, and the mask,
            bool, shape `(batch_size, num_tokens)`; sentence boundaries are left out.
        """
        ids = self.elmo_bilm.batch_to_ids(batch)
        with torch.no_grad():
            output = self.elmo_bilm(ids.to(next(self.elmo_bilm.parameters()).device))
        mask = output["mask"][:, 2:]
        layers = torch.stack([layer[:, 1:-1] for layer in output["activations"]], dim=1)
        return layers * mask[:, None, :, None], mask

    def embed_sentence(self, sentence: Sequence[str]) -> numpy.ndarray:
        """
        # Parameters

        sentence : `Sequence[str]`
            Its tokens; may be empty.

        # Returns

        `numpy.ndarray`
            Float32, shape `(mixture_size, num_tokens, embedding_dim)`.
        """
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[numpy.ndarray]:
        """
        # Parameters

        batch : `Sequence[Sequence[str]]`
            Tokenized sentences, run together.

        # Returns

        `list[numpy.ndarray]`
            For each sentence its layers, float32, shape
            `(mixture_size, num_tokens, embedding_dim)`.

        # Raises

        `ValueError`
            If a sentence is a string, whose letters would be its tokens.
        """
        for sentence in batch:
            if isinstance(sentence, str):
                raise ValueError(
                    f"found the string {quoted(sentence)} for a sentence, expected its tokens: "
                    f"{sentence.split()[:8]}"
                )
        # As in AllenNLP, a lone empty sentence does not move a state that is carried.
        if all(len(sentence) == 0 for sentence in batch) and len(batch) < 2:
            return [self._empty() for _ in batch]
        layers, _ = self.batch_to_embeddings(batch)
        arrays = layers.cpu().numpy()
        return [
            numpy.ascontiguousarray(array[:, : len(sentence)])
            for array, sentence in zip(arrays, batch)
        ]

    def _empty(self) -> numpy.ndarray:
        options = self.elmo_bilm.options
        return numpy.zeros((options.num_layers + 1, 0, options.embedding_dim), numpy.float32)

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[numpy.ndarray]:
        """
        # Parameters

        sentences : `Iterable[Sequence[str]]`
            Tokenized sentences; read as they are needed.
        batch_size : `int`, optional (default = `64`)
            Sentences run together.

        # Returns

        `Iterator[numpy.ndarray]`
            As from `embed_batch`, in order.

        # Raises

        `ValueError`
            At once if `batch_size` is less than 1; as `embed_batch` when a batch is reached.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
        iterator = iter(sentences)
        batches = iter(lambda: list(itertools.islice(iterator, batch_size)), [])
        return itertools.chain.from_iterable(map(self.embed_batch, batches))

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
        Writes the layers of every line to an HDF5 file, which is replaced when the new one is
        whole. See `extract` for the file and for what the command can do beyond this.

        # Parameters

        input_file : `IO[str]`
            One sentence a line, tokens apart by white space.
        output_file_path : `Union[str, Path]`
            The file to write.
        output_format : `str`, optional (default = `"all"`)
            `"all"` layers, the `"top"` one, or their `"average"`.
        batch_size : `int`, optional (default = `64`)
            Sentences run together.
        forget_sentences : `bool`, optional (default = `False`)
            Whether to leave out the dataset `sentence_to_index`.
        use_sentence_keys : `bool`, optional (default = `False`)
            Whether sentences are the keys, in place of line numbers; see `sentence_key`.
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
) -> BiLm:
    """
    # Parameters

    caller : `str`
        Who says on stderr that it uses the embedded biLM, where neither file is given.
    options_file, weight_file, state
        As in `ElmoEmbedder`.

    # Returns

    `BiLm`
    """
    if options_file is None and weight_file is None:
        print(
            f"{caller}: no options_file and weight_file given, using the embedded biLM",
            file=sys.stderr,
        )
    return load_bilm(options_file, weight_file, state=state, default="embedded")
