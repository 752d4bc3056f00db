"""docs/architecture.md names what exists, and imports go where it says."""

import re
from pathlib import Path

from tests.test_architecture import imports

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
NAME = re.compile(r"`([\w./]+(?:\.py|\.jsonnet|/))`")


def missing(page):
    """Files and folders that are named as code, from the repository's root or the package."""
    names = set(NAME.findall(page))
    return {n for n in names if not any((at / n).exists() for at in (ROOT, ROOT / "elmo_plugin"))}


def test_every_file_that_is_named_exists():
    assert len(NAME.findall(PAGE)) > 50
    assert missing(PAGE) == set()
    assert missing("`bilm/model/lstm.py` and `bilm/gone.py`") == {"bilm/gone.py"}


def test_every_folder_of_the_bilm_is_named():
    folders = [path.parent.name for path in (ROOT / "elmo_plugin" / "bilm").glob("*/__init__.py")]
    assert len(folders) >= 6
    assert [folder for folder in folders if f"`bilm/{folder}/`" not in PAGE] == []


def upward(order, imports):
    """Imports that point to the right in an order."""
    place = {name: number for number, name in enumerate(order)}
    return [
        (importer, imported) for importer, imported in imports if place[importer] < place[imported]
    ]


def parts(package):
    """Folders and modules of a package, without `__init__` and `__main__`."""
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    return folders | {path.stem for path in package.glob("[!_]*.py")}


def imports_between(package):
    """Pairs of parts of a package, a folder or module each, of which one imports the other."""
    prefix = ".".join(package.relative_to(ROOT).parts) + "."
    for path in package.rglob("*.py"):
        importer = path.relative_to(package).parts[0].removesuffix(".py")
        for name in imports(path.read_text("utf-8")):
            if name.startswith(prefix):
                imported = name.removeprefix(prefix).split(".")[0]
                if imported != importer and not importer.startswith("__"):
                    yield importer, imported


def test_imports_point_to_the_left():
    inner, outer = (
        re.findall(r"\w+", re.search(rf"- in {where}: ([\w, \n]+)[;.]", PAGE)[1])
        for where in ("`bilm/`", "the package")
    )
    package = ROOT / "elmo_plugin"
    assert parts(package) == set(outer)
    assert parts(package / "bilm") == set(inner)
    assert upward(outer, imports_between(package)) == []
    assert upward(inner, imports_between(package / "bilm")) == []
    assert upward(["data", "models"], [("data", "models"), ("models", "data")]) == [
        ("data", "models")
    ]
