"""What is had by an extra, and is not there."""

import json
import sys

import pytest

from elmo_plugin.bilm.corpus.extras import needed
from elmo_plugin.commands import MISSING


def test_a_module_that_is_there_is_given():
    assert needed("json", "parquet") is json


@pytest.mark.parametrize("name", ["pyarrow", "pyarrow.parquet", "ray"])
def test_what_is_missing_says_which_extra_has_it(name, monkeypatch):
    package = name.split(".")[0]
    monkeypatch.setitem(sys.modules, name, None)
    extra = {"pyarrow": "parquet"}.get(package, package)
    with pytest.raises(ModuleNotFoundError) as raised:
        needed(name, extra)
    assert raised.value.name == package
    assert str(raised.value) == f"{package} is not installed; {MISSING[package]}"
