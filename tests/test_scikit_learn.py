"""`ElmoTransformer` as scikit-learn's parts use it."""

import pickle

import numpy
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from elmo_plugin import ElmoHub, ElmoTransformer

TEXTS = ["The cat sat", "Dogs bark at the moon .", "", "Yes"]


def test_the_mean_is_the_hubs(bilm_files):
    vectors = ElmoTransformer(**bilm_files).fit_transform(TEXTS)
    expected = ElmoHub(*bilm_files.values())(TEXTS)["default"].detach().numpy()
    assert vectors.shape == (4, 12)
    numpy.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert not vectors[2].any()
    tokens = [text.split() for text in TEXTS]
    again = ElmoTransformer(**bilm_files, batch_size=2).fit_transform(tokens)
    numpy.testing.assert_allclose(again, vectors, atol=1e-6)


def test_the_maximum(bilm_files):
    transformer = ElmoTransformer(pooling="max", **bilm_files).fit(TEXTS)
    elmo = ElmoHub(*bilm_files.values())(TEXTS)["elmo"].detach().numpy()
    found = transformer.transform(TEXTS)
    numpy.testing.assert_allclose(found[1], elmo[1].max(axis=0), atol=1e-6)
    numpy.testing.assert_allclose(found[0], elmo[0, :3].max(axis=0), atol=1e-6)
    assert list(transformer.get_feature_names_out())[:2] == ["elmo0", "elmo1"]


def test_in_a_pipeline_and_a_search(bilm_files):
    texts = [f"{word} {rest}" for word in ("good", "bad") for rest in "abcdef"]
    labels = [text.split()[0] for text in texts]
    pipeline = make_pipeline(ElmoTransformer(**bilm_files), LogisticRegression(C=1000))
    assert pipeline.fit(texts, labels).score(texts, labels) == 1
    search = GridSearchCV(pipeline, {"elmotransformer__pooling": ["mean", "max"]}, cv=2)
    search.fit(texts, labels)
    assert search.best_params_["elmotransformer__pooling"] in ("mean", "max")
    stored = pickle.loads(pickle.dumps(pipeline))
    assert list(stored.predict(texts)) == list(pipeline.predict(texts))
    parameters = clone(pipeline).get_params()
    assert parameters["elmotransformer__options_file"] == bilm_files["options_file"]


class Frame:
    """A DataFrame, as far as texts are asked for: iteration gives the names of columns."""

    def __init__(self, **columns):
        self.columns, self.shape = columns, (4, len(columns))

    def __iter__(self):
        return iter(self.columns)

    def __array__(self, dtype=None, copy=None):
        return numpy.array([*self.columns.values()], dtype=object).T


def test_pandas_in_a_column_transformer(bilm_files):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "number": range(4)})
    columns = ColumnTransformer([("elmo", ElmoTransformer(**bilm_files), ["text"])])
    expected = ElmoTransformer(**bilm_files).fit_transform(TEXTS)
    numpy.testing.assert_allclose(columns.fit_transform(frame), expected, atol=1e-6)


def test_a_table_with_one_column_is_its_texts(bilm_files):
    expected = ElmoTransformer(**bilm_files).fit_transform(TEXTS)
    column = numpy.array(TEXTS, dtype=object)[:, None]
    for texts in (Frame(text=TEXTS), column, column.astype(str)):
        found = ElmoTransformer(**bilm_files).fit_transform(texts)
        numpy.testing.assert_allclose(found, expected, atol=1e-6)
    for wrong, message in (
        (Frame(text=TEXTS, number=range(4)), "X has 2 columns, expected a single one of texts"),
        (numpy.array("a b"), "found the string 'a b' for a list of texts"),
        (numpy.array([["a b", "c"], ["d", "e"]]), "X has 2 columns, expected a single one"),
        (Frame(text=[*TEXTS[:2], None, "Yes"]), "sentence 2 is None, expected a list of tokens or"),
    ):
        with pytest.raises(ValueError, match=message):
            ElmoTransformer(**bilm_files).fit_transform(wrong)


def test_transform_before_fit_is_scikit_learns_error(bilm_files):
    with pytest.raises(NotFittedError):
        ElmoTransformer(**bilm_files).transform(TEXTS)
