"""spaCy component `elmo`, which computes a frozen biLM's layers for the tokens of a Doc."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import srsly
import torch
from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from elmo_plugin.bilm.extraction.batches import batches
from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.options import options_dict, read_options
from elmo_plugin.bilm.files.plain_tensors import check_state_dict, plain_tensors
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput
from elmo_plugin.bilm.model.state import REPRODUCIBLE_MODES
from elmo_plugin.bilm.use.layer_cache import LayerCache
from elmo_plugin.spacy import hook_similarity

OPTIONS_FILE, WEIGHTS_FILE, TENSORS_FILE = "options.json", "weights.hdf5", "weights.th"


class ElmoComponent(Pipe):
    """
    spaCy component that stores a biLM's layers in `doc._.elmo`, float32, shape `(mixture_size,
    num_tokens, embedding_dim)`, and their mean in `doc.tensor`, which `similarity` compares.

    The component is not trained. A training config must list it in `annotating_components`. Later
    components learn a scalar mix of the layers with the architecture `elmo_plugin.ElmoMix.v1`.

    The biLM runs on each sentence (`doc.sents`), or on the whole Doc if sentences are not set.
    White-space tokens get zeros. A saved pipeline contains the biLM.

    # Parameters

    name : `str`, optional (default = `"elmo"`)
        Name in the pipeline.
    options_file, weight_file : `Optional[str]`, optional (default = `"embedded"`, `None`)
        See `Elmo`. They are read at first use. A saved pipeline does not need them.
    state : `str`, optional (default = `"primed"`)
        `"primed"` or `"reset"`; see `BiLm`.
    max_tokens : `int`, optional (default = `4096`)
        Largest number of tokens in a batch. Longer sentences are run in chunks.
    dtype, cache : `Optional[str]`, optional (default = `None`)
        See `Elmo`.
    nlp : `Optional[Language]`, optional (default = `None`)
        The pipeline, which spaCy gives; not used.

    # Raises

    `ValueError`
        If `state` is neither `"primed"` nor `"reset"`, or `max_tokens` is less than 1.
    """

    def __init__(
        self,
        name: str = "elmo",
        options_file: str = "embedded",
        weight_file: str | None = None,
        state: str = "primed",
        dtype: str | None = None,
        max_tokens: int = 4096,
        cache: str | None = None,
        *,
        nlp: Language | None = None,
    ) -> None:
        if state not in REPRODUCIBLE_MODES:
            raise ValueError(f"elmo: state is {state!r}, expected one of {REPRODUCIBLE_MODES}")
        if max_tokens < 1:
            raise ValueError(f"elmo: max_tokens is {max_tokens}, expected 1 or more")
        self.name = name
        self._files: tuple[Any, Any] = (options_file, weight_file)
        self._settings: Any = {"state": state, "dtype": dtype}
        self._max_tokens = max_tokens
        self._cache = None if cache is None else LayerCache(cache)
        self._bilm: BiLm | None = None

    @property
    def bilm(self) -> BiLm:
        """The biLM, loaded at first use; to run it on a GPU, call its method `cuda`."""
        if self._bilm is None:
            self._bilm = load_bilm(*self._files, **self._settings).eval()
        return self._bilm

    def initialize(
        self, get_examples: Callable[[], Iterable[Example]], *, nlp: Language | None = None
    ) -> None:
        """Load the biLM, so that a wrong file name raises an error before training begins."""
        assert self.bilm is not None

    def __call__(self, doc: Doc) -> Doc:  # noqa: D102 (spaCy's)
        self._annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """
        Add layers to a stream of Docs, and yield the Docs in order. Within each group of
        `batch_size` Docs, the biLM runs on batches of sentences of similar length.
        """
        handle_error = self.get_error_handler()
        for docs in minibatch(stream, batch_size):
            docs = list(docs)
            try:
                self._annotate(docs)
                yield from docs
            except Exception as error:
                handle_error(self.name, self, docs, error)

    @torch.no_grad()
    def _annotate(self, docs: list[Doc]) -> None:
        options = self.bilm.options
        layers = [
            numpy.zeros((options.num_layers + 1, len(doc), options.embedding_dim), "float32")
            for doc in docs
        ]
        # `places` has a pair for each sentence: its Doc's array, and the positions to write to.
        sentences, places = [], []
        for doc, own in zip(docs, layers):
            for span in doc.sents if doc.has_annotation("SENT_START") else [doc[:]]:
                tokens = [token for token in span if not token.is_space]
                if tokens:
                    sentences.append([token.text for token in tokens])
                    places.append((own, numpy.array([token.i for token in tokens])))
        for batch in batches([len(one) + 2 for one in sentences], self._max_tokens):
            found = self._layers([sentences[index] for index in batch])
            for index, values in zip(batch, found):
                own, positions = places[index]
                own[:, positions] = values[:, : len(positions)]
        for doc, own in zip(docs, layers):
            doc._.elmo = own
            doc.tensor = own.mean(axis=0)
            hook_similarity(doc)

    def _layers(self, sentences: list[list[str]]) -> Iterable[numpy.ndarray]:
        """Return an array of layers for each sentence, padded to the longest of the sentences."""
        bilm = self.bilm
        if len(sentences[0]) + 2 > self._max_tokens:
            (sentence,) = sentences
            chunks = layers_in_chunks(bilm, sentence, self._max_tokens)
            return [torch.cat([one.float().cpu() for one in chunks], dim=1).numpy()]
        ids = bilm.batch_to_ids(sentences).to(bilm.device)
        output = bilm(ids) if self._cache is None else self._cache.layers(bilm, ids)
        layers = torch.stack(BiLmOutput.of(output).tokens().layers, dim=1)
        return layers.float().cpu().numpy()

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """
        Write the biLM to the folder `path`, as `options.json` and `weights.hdf5`. The weights of an
        ELMoForManyLangs model are written to `weights.th` instead. `exclude` is ignored.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        if isinstance(self.bilm.options, ManyLangsOptions):
            with atomic_write(path / TENSORS_FILE) as temporary:
                torch.save(self.bilm.state_dict(), temporary)
        else:
            save_weights(self.bilm, path / WEIGHTS_FILE)
            # Remove `weights.th` of an earlier model, which `from_disk` would read instead.
            (path / TENSORS_FILE).unlink(missing_ok=True)
        with atomic_write(path / OPTIONS_FILE) as temporary:
            srsly.write_json(temporary, options_dict(self.bilm.options))

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "ElmoComponent":
        """
        Load the biLM from a folder that `to_disk` has written. `exclude` is ignored.

        # Raises

        `FileNotFoundError`, `ValueError`
            If a file is missing or damaged; the message names it.
        """
        options, tensors = Path(path) / OPTIONS_FILE, Path(path) / TENSORS_FILE
        if not tensors.is_file():
            self._bilm = load_bilm(options, Path(path) / WEIGHTS_FILE, **self._settings).eval()
            return self
        bilm = load_bilm(options_dict(read_options(options)), **self._settings)
        weights = plain_tensors(tensors, "file of weights")
        check_state_dict(weights, bilm.state_dict(), tensors)
        try:
            bilm.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"{tensors} does not fit {options}: {error}") from error
        self._bilm = bilm.eval()
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the files that `to_disk` writes, as one bytes object."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(folder)
            return srsly.msgpack_dumps(
                {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
            )

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "ElmoComponent":
        """Load the biLM from a result of `to_bytes`."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in srsly.msgpack_loads(data).items():
                (Path(folder) / Path(name).name).write_bytes(content)
            return self.from_disk(folder)


# spaCy's entry point. The config's keys and defaults are the constructor's.
make_elmo = Language.factory("elmo", assigns=["doc._.elmo", "doc.tensor"], func=ElmoComponent)
