import json
import sys

import pytest

from elmo_plugin.bilm.files.optional_packages import import_optional
from elmo_plugin.commands import MISSING


def test_installed_module_is_imported():
    assert import_optional("json", "parquet") is json


@pytest.mark.parametrize("name", ["pyarrow", "pyarrow.parquet", "ray", "tensorflow"])
def test_error_names_the_extra_that_installs_a_missing_package(name, monkeypatch):
    package = name.split(".")[0]
    monkeypatch.setitem(sys.modules, name, None)
    extra = {"pyarrow": "parquet"}.get(package, package)
    with pytest.raises(ModuleNotFoundError) as raised:
        import_optional(name, extra)
    assert raised.value.name == package
    assert str(raised.value) == f"{package} is not installed; {MISSING[package]}"
