"""
Runs a notebook: `python -m tests.docs.notebook docs/ten_minutes.ipynb` runs its cells in the
repository's folder and stores what they print and draw, which is what the site shows.
"""

import base64
import contextlib
import io
import json
import sys
from pathlib import Path


def execute(path, names=None):
    """The notebook with new outputs; `names` receives the variables of its cells."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    notebook = json.loads(Path(path).read_text("utf-8"))
    names = {} if names is None else names
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"{path}, cell {cell['id']}", "exec"), names)
        cell["outputs"] = [_image(pyplot.figure(number)) for number in pyplot.get_fignums()]
        pyplot.close("all")
        if text := printed.getvalue():
            lines = text.splitlines(keepends=True)
            cell["outputs"].append({"name": "stdout", "output_type": "stream", "text": lines})
    return notebook


def _image(figure):
    """A figure as a cell's output, with its title for those who do not see it."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    title = figure.get_suptitle() or figure.axes[0].get_title()
    png = base64.b64encode(file.getvalue()).decode()
    data = {"image/png": png, "text/plain": [title]}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


if __name__ == "__main__":
    text = json.dumps(execute(sys.argv[1]), indent=1, ensure_ascii=False) + "\n"
    Path(sys.argv[1]).write_text(text, "utf-8")
