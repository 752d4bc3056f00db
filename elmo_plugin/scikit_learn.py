"""ELMo as a step of a scikit-learn `Pipeline`."""

from collections.abc import Sequence
from typing import Any

import numpy
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from elmo_plugin.bilm.use.embedder import ElmoEmbedder

POOLINGS: dict[str, Any] = {"mean": numpy.mean, "max": numpy.max}


class ElmoTransformer(TransformerMixin, BaseEstimator):
    """
    Texts to vectors: the mean of the biLM's layers, pooled over a text's tokens.

    # Parameters

    pooling : `str`, optional (default = `"mean"`)
        `"mean"` or `"max"`.
    options_file : `str`, optional (default = `"embedded"`)
        The biLM's `options.json`: a name (`embedded`, `small`, `medium`, `original`, `5.5B`), a
        path or a URL.
    weight_file : `Optional[str]`, optional (default = `None`)
        Its `weights.hdf5`; not needed with a name.
    state : `str`, optional (default = `"primed"`)
        See `BiLm`.
    batch_size : `int`, optional (default = `64`)
        Texts run together.
    """

    def __init__(
        self,
        pooling: str = "mean",
        options_file: str = "embedded",
        weight_file: str | None = None,
        state: str = "primed",
        batch_size: int = 64,
    ) -> None:
        self.pooling = pooling
        self.options_file = options_file
        self.weight_file = weight_file
        self.state = state
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> "ElmoTransformer":
        """Loads the biLM; nothing is learned."""
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling is {self.pooling!r}, expected one of {list(POOLINGS)}")
        self.embedder_ = ElmoEmbedder(self.options_file, self.weight_file, state=self.state)
        return self

    def transform(self, X: Sequence[str | Sequence[str]]) -> numpy.ndarray:
        """
        Texts, split on white space, or their tokens, to vectors of shape
        `(len(X), embedding_dim)`; zero for a text without any.
        """
        check_is_fitted(self)
        if isinstance(X, str):
            raise ValueError(f"found the string {X[:80]!r} for a list of texts, expected [text]")
        tokens = [text.split() if isinstance(text, str) else list(text) for text in X]
        vectors = numpy.zeros((len(tokens), self.embedder_.elmo_bilm.get_output_dim()), "float32")
        for row, layers in zip(vectors, self.embedder_.embed_sentences(tokens, self.batch_size)):
            if layers.shape[1]:
                row[:] = POOLINGS[self.pooling](layers.mean(axis=0), axis=0)
        return vectors

    def get_feature_names_out(self, input_features: Any = None) -> numpy.ndarray:
        """`elmo0`, `elmo1`, ..."""
        check_is_fitted(self)
        names: list[str] = [f"elmo{i}" for i in range(self.embedder_.elmo_bilm.get_output_dim())]
        return numpy.asarray(names, dtype=object)
