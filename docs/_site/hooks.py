"""
MkDocs hooks: generated pages (the reference, the notebook), formulas as MathML, and links to files
of the repository that are not part of the site.
"""

import argparse
import ast
import json
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

from docs._site.allennlp_docstrings import PACKAGE, ROOT, public_names, with_links
from elmo_plugin.commands import COMMANDS


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    pages = {
        "reference/python.md": python_page(),
        "reference/allennlp.md": allennlp_page(),
        "reference/commands.md": commands_page(),
        "ten_minutes.md": notebook_page(ROOT / "docs" / "ten_minutes.ipynb"),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


# --- the reference -------------------------------------------------------------------------------


def python_page() -> str:
    """Return the page of the public names, in the order of `elmo_plugin/__init__.py`."""
    blocks = [f"::: {path}" for path in public_names().values()]
    return "\n\n".join(["# Python", "Every name below is imported from `elmo_plugin`.", *blocks])


def registered() -> list[tuple[str, str, str]]:
    """Return base class, registered names and path of every class that registers itself."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        for node in ast.parse(source).body:
            if not isinstance(node, ast.ClassDef):
                continue
            calls = [
                call
                for call in node.decorator_list
                if isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "register"
            ]
            names = [_value(call.args[0], source) for call in calls]
            if shown := ", ".join(f"`{name}`" for name in names if name):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                base = ast.unparse(calls[0].func.value)  # type: ignore[attr-defined]
                found.append((base, shown, f"{module}.{node.name}"))
    return sorted(found)


def _value(name: ast.expr, source: str) -> str:
    """Return a registered name: a string, or a constant that is imported; else an empty string."""
    if isinstance(name, ast.Constant):
        return name.value
    text = ast.unparse(name)
    if imported := re.search(rf"from ([\w.]+) import .*\b{re.escape(text)}\b", source):
        home = ROOT.joinpath(*imported[1].split(".")).with_suffix(".py").read_text("utf-8")
        if constant := re.search(rf'^{re.escape(text)} = "(\w+)"', home, re.MULTILINE):
            return constant[1]
    return ""


def allennlp_page() -> str:
    """Return the page of the classes that configs name by `type`."""
    parts = ["# AllenNLP classes", "The classes that a config names by `type`, by base class.", ""]
    base = ""
    for kind, names, path in registered():
        if kind != base:
            base = kind
            parts.append(f"## {base}")
        parts.append(f"### {names}\n\n::: {path}\n    options:\n      heading_level: 4")
    return "\n\n".join(parts)


def commands_page() -> str:
    """Return the page of all commands, with the text of `--help`."""
    os.environ["COLUMNS"] = "92"
    parts = [
        "# Commands",
        "Each command runs as `elmo-plugin NAME`, as `python -m elmo_plugin NAME`, and, with "
        "AllenNLP, as `allennlp NAME`. `elmo-plugin NAME --help` prints the text below.",
    ]
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=f"elmo-plugin {name}", description=command.help)
        command.add_arguments(parser)
        parts.append(f"## {name}\n\n```text\n{parser.format_help()}```")
    return "\n\n".join(parts)


# --- the notebook --------------------------------------------------------------------------------


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown: its cells, and the outputs that are stored in it."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                image = "".join(data["image/png"]).replace("\n", "")
                text = "".join(data.get("text/plain", "")) or "plot"
                parts.append(f"![{text}](data:image/png;base64,{image}){{ .plot }}")
            elif text := "".join(output.get("text", data.get("text/plain", ""))):
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


# --- formulas and links --------------------------------------------------------------------------

CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
DISPLAY = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])")
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **kwargs: Any) -> str:
    """
    Turn formulas into MathML, public names into links to the reference, links to the notebook into
    links to its page, and links out of `docs/` into links to the repository.
    """
    folder = Path("docs", page.file.src_uri).parent

    def to_repository(found: re.Match[str]) -> str:
        text, up, name, anchor = found.groups()
        target = Path(os.path.normpath(folder / up / name))
        if target.parts[0] == "docs":
            return found[0]
        if not (ROOT / target).exists():
            raise ValueError(f"{page.file.src_uri} links to {target}, which does not exist")
        repository = config.extra["repository"]
        if not repository:
            return f"`{target}`" if text in str(target) else f"{text} (`{target}`)"
        return f"[{text}]({repository.rstrip('/')}/blob/main/{target}{anchor or ''})"

    markdown = markdown.replace("](ten_minutes.ipynb)", "](ten_minutes.md)")
    parts = CODE.split(LINK.sub(to_repository, markdown))
    for number in range(0, len(parts), 2):  # the others are code
        text = DISPLAY.sub(lambda found: _math(found[1], "div", "block"), parts[number])
        parts[number] = INLINE.sub(lambda found: _math(found[1], "span", "inline"), text)
    text = "".join(parts)
    return text if page.file.src_uri.startswith("reference/") else with_links(text)


def _math(formula: str, tag: str, display: str) -> str:
    return f'<{tag} class="math">{convert(formula, display=display)}</{tag}>'
