"""ELMo as a scikit-learn transformer."""

from collections.abc import Iterable
from typing import Any

import numpy
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from elmo_plugin.bilm.use.embedder import POOLINGS, ElmoEmbedder


class ElmoTransformer(TransformerMixin, BaseEstimator):
    """
    scikit-learn transformer from texts to vectors: the mean of the biLM's layers, pooled over each
    text's tokens. It can be a step of a `Pipeline`.

    # Parameters

    pooling : `str`, optional (default = `"mean"`)
        `"mean"` or `"max"`, over the tokens of a text.
    options_file : `str`, optional (default = `"embedded"`)
        The biLM's `options.json`; see `ElmoEmbedder`.
    weight_file : `Optional[str]`, optional (default = `None`)
        The biLM's `weights.hdf5`; not needed if `options_file` is a name.
    state : `str`, optional (default = `"primed"`)
        Initial LSTM state of each text; see `BiLm`.
    batch_size : `int`, optional (default = `64`)
        Number of texts that the biLM runs on at once.
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
        """
        Load the biLM and return `self`. Nothing is learned from `X`. Raise a `ValueError` if
        `pooling` is unknown.
        """
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling is {self.pooling!r}, expected one of {list(POOLINGS)}")
        self.embedder_ = ElmoEmbedder(
            self.options_file, self.weight_file, state=self.state, tokenizer=str.split
        )
        return self

    def transform(self, X: Any) -> numpy.ndarray:
        """
        Return a vector for each text, float32, shape `(num_texts, embedding_dim)`. The vector of a
        text without tokens is zero. `X` is a list, a Series, an array or a DataFrame with
        one column. Its items are strings, which are split at white space, or lists of tokens.

        # Raises

        `ValueError`
            If `X` is a string or has several columns, or an item is neither string nor tokens.
        """
        check_is_fitted(self)
        return self.embedder_.sentence_vectors(_texts(X), self.pooling, self.batch_size)

    def get_feature_names_out(self, input_features: Any = None) -> numpy.ndarray:
        """Return the names of the vectors' dimensions: `elmo0`, `elmo1`, ..."""
        check_is_fitted(self)
        width = self.embedder_.elmo_bilm.get_output_dim()
        return numpy.array([f"elmo{i}" for i in range(width)], dtype=object)


def _texts(X: Any) -> Iterable[Any]:
    """Return the items of `X`, or of its only column if it is a DataFrame or a 2-D array."""
    shape: Any = getattr(X, "shape", (None,))
    if isinstance(X, str) or shape == ():
        raise ValueError(f"found the string {str(X)[:80]!r} for a list of texts, expected [text]")
    if len(shape) < 2:
        return X
    if shape[1] != 1:
        raise ValueError(f"X has {shape[1]} columns, expected a single one of texts")
    return numpy.asarray(X)[:, 0]  # iterating over a DataFrame would give column names
