import json
import re
import sys
from pathlib import Path

import pytest

from elmo_plugin.bilm.files.optional_packages import MISSING, import_optional

ROOT = Path(__file__).parents[3]


def test_installed_module_is_imported():
    assert import_optional("json") is json


@pytest.mark.parametrize("name", ["pyarrow", "pyarrow.parquet", "ray", "tensorflow"])
def test_error_names_the_extra_that_installs_a_missing_package(name, monkeypatch):
    package = name.split(".")[0]
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError) as raised:
        import_optional(name)
    assert raised.value.name == package
    assert str(raised.value) == f"{package} is not installed; {MISSING[package]}"


def test_what_the_package_imports_and_advises_are_extras_that_a_page_lists():
    names = re.compile(r'import_optional\(\s*"(\w+)')
    sources = (path.read_text("utf-8") for path in (ROOT / "elmo_plugin").rglob("*.py"))
    imported = {name for source in sources for name in names.findall(source)}
    assert {"pyarrow", "safetensors"} <= imported <= MISSING.keys()
    setup = (ROOT / "setup.py").read_text("utf-8").partition("extras_require={")[2]
    extras = set(re.findall(r'^ {8}"([\w-]+)": \[', setup.partition("    },")[0], re.MULTILINE))
    assert extras >= set(re.findall(r"elmo_plugin\[(.+?)\]", " ".join(MISSING.values())))
    page = (ROOT / "docs" / "getting_started.md").read_text("utf-8")
    cells = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert extras == set(re.findall("`(.+?)`", " ".join(cells)))
