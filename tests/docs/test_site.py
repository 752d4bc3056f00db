"""The built documentation (`make docs`) is complete, and asks no other host for anything."""

import ast
import html
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
pytestmark = pytest.mark.site
# Attributes by which a page loads something, by tag.
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
FOREIGN = re.compile(r"^(https?:)?//")


class Page(HTMLParser):
    """A page's anchors, its links, and the files that it loads."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.anchors, self.links = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if values.get("id"):
            self.anchors.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        # `canonical`, `next` and `prev` name pages and load nothing.
        named = values.get("rel") in ("canonical", "next", "prev")
        if tag in LOADS and values.get(LOADS[tag]) and not named:
            self.loads.append(values[LOADS[tag]])


@pytest.fixture(scope="module")
def pages():
    found = {path: path.read_text("utf-8") for path in SITE.rglob("*.html")}
    assert len(found) > 20
    return found


def text_of(pages, name):
    return html.unescape(re.sub(r"<[^>]+>", "", pages[SITE / name]))


def foreign(text):
    """Files that a page or style sheet loads from another host."""
    styles = re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", text)
    return [one for one in (*Page(text).loads, *styles) if FOREIGN.match(one)]


def test_nothing_is_loaded_from_another_host(pages):
    assert {path.name: foreign(text) for path, text in pages.items() if foreign(text)} == {}
    for path in SITE.rglob("*.css"):
        assert foreign(path.read_text("utf-8")) == [], path
    for text in (
        '<script src="https://a.example/b.js"></script>',
        '<link rel="stylesheet" href="//a.example/b.css">',
        "<style>@import 'https://a.example/b.css'</style>",
    ):
        assert foreign(text)


def test_every_link_and_anchor_leads_somewhere(pages):
    parsed = {path: Page(text) for path, text in pages.items()}
    for path, page in parsed.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            if re.match(r"^(\w+:|//)", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            if target.is_dir():
                target = target / "index.html"
            assert target.exists(), f"{path}: {link}"
            if anchor and target in parsed:
                assert anchor in parsed[target].anchors, f"{path}: {link}"


def test_the_reference_has_every_public_name(pages):
    tree = ast.parse((ROOT / "elmo_plugin" / "__init__.py").read_text("utf-8"))
    names = [
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
        for key in node.value.keys
    ]
    assert len(names) > 15
    anchors = Page(pages[SITE / "reference" / "python.html"]).anchors
    ends = {anchor.rpartition(".")[2] for anchor in anchors}
    assert [name for name in names if name not in ends] == []


def test_the_reference_has_parameters_and_no_raw_headings(pages):
    for name in ("reference/python.html", "reference/allennlp.html"):
        text = text_of(pages, name)
        assert "Parameters:" in text
        assert not re.search(r"^# (Parameters|Returns|Raises)", text, re.MULTILINE)
        assert 'id="parameters"' not in pages[SITE / name]


def test_the_reference_has_every_command_with_its_help(pages):
    from elmo_plugin.commands import COMMANDS

    text = text_of(pages, "reference/commands.html")
    for name in COMMANDS:
        assert f"usage: elmo-plugin {name} [-h]" in text


def test_the_reference_has_every_registered_class(pages):
    text = text_of(pages, "reference/allennlp.html")
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "elmo_plugin").rglob("*.py"))
    names = re.findall(r'^@\w+\.register\("([^"]+)"', sources, re.MULTILINE)
    assert len(names) > 30
    assert [name for name in names if name not in text] == []


def test_formulas_are_mathml(pages):
    page = pages[SITE / "concepts" / "model.html"]
    assert page.count("<math") > 20
    assert "\\frac" not in page
    assert "$$" not in page


def test_public_names_lead_to_the_reference(pages):
    links = Page(pages[SITE / "index.html"]).links
    assert "reference/python.html#elmo_plugin.bilm.use.embedder.ElmoEmbedder" in links
    assert "#elmo_plugin.bilm.model.bilm.BiLm" in Page(pages[SITE / "reference/python.html"]).links


def test_search_from_disk_finds_a_word_of_every_kind_of_page(pages):
    assert "assets/iframe-worker.js" in Page(pages[SITE / "index.html"]).loads
    index = (SITE / "search" / "search_index.js").read_text("utf-8")
    for word in ("pretraining", "ElmoEmbedder", "batch_to_ids", "convert-checkpoint"):
        assert word in index
