"""
Runs the blocks of a page: `bash` and `python` are run, and a `text` block is what they print. A
`jsonnet` block that begins with a comment such as `// out/name.jsonnet` is saved as that file.
"""

import contextlib
import io
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple, Optional

from tests.fresh_process import commands_in

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: `language`, `code`, and the `output` that the page shows, if any."""

    language: str
    code: str
    output: Optional[str]

    @property
    def runs(self):
        return self.language in ("bash", "python")

    @property
    def saved_as(self):
        """The file that a `jsonnet` block names in its first line, or `None`."""
        named = re.match(r"// (\S+\.jsonnet)\n", self.code)
        return named[1] if named and self.language == "jsonnet" else None


def blocks(page):
    """The fenced blocks of a page, in order; `text` that follows no code belongs to the prose."""
    text = (ROOT / page).read_text("utf-8") + "\n"
    found = [Block(*match.groups()) for match in BLOCK.finditer(text)]
    assert text.count("```") == 2 * (len(found) + sum(block.output is not None for block in found))
    return found


def ignored_folders():
    """The folders at the top of the repository that `.gitignore` keeps out of it."""
    lines = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    return {line.strip("/") for line in lines if line[0] == "/"}


def run(page, folder, replacements=()):
    """
    Runs a page's blocks as one session, in a folder that looks like the repository's. What they
    write must be where `.gitignore` has it.
    """
    for name in (".allennlp_plugins", "examples", "training_config", "elmo_plugin"):
        (folder / name).symlink_to(ROOT / name)
    environment = {**os.environ, "HOME": str(folder)}
    # To make Matplotlib's list of fonts anew takes seconds.
    environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment["PATH"], pipes = commands_in(folder / ".bin")
    names = {}
    chosen = [block for block in blocks(page) if block.runs or block.saved_as]
    assert any(block.runs for block in chosen)
    there = set(folder.iterdir())
    for block in chosen:
        code = block.code
        if block.saved_as:
            (folder / block.saved_as).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.saved_as).write_text(code)
            continue
        for before, after in replacements:
            code = code.replace(before, after)
        if block.language == "bash":
            child = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", code],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                pass_fds=pipes,
            )
            assert child.returncode == 0, code + child.stderr
            output = child.stdout
        else:
            printed = io.StringIO()
            with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
                exec(compile(code, page, "exec"), names)
            output = printed.getvalue()
        if block.output is not None:
            assert output == block.output, code
    # Hidden files are the home's.
    written = {path.name for path in set(folder.iterdir()) - there if path.name[0] != "."}
    assert written <= ignored_folders(), written
