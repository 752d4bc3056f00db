"""What may import what: `bilm/` stands alone, models never import training."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import elmo_plugin
from tests.fresh_process import run

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "elmo_plugin"
# tqdm: the progress bar of pretraining; pure Python, needs nothing.
BILM_MAY_IMPORT = {"torch", "numpy", "h5py", "tqdm", "filelock", *sys.stdlib_module_names}


def imports(source):
    """Every module that the source imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            # `from package import module` names a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(folder):
    paths = sorted(folder.rglob("*.py"))
    assert paths
    return [(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in paths]


def without_optional_imports(source):
    """The source less what stands in `try: import ... except ImportError:`."""

    class Remove(ast.NodeTransformer):
        def visit_Try(self, node):
            handled = {ast.unparse(h.type) for h in node.handlers if h.type is not None}
            if handled & {"ImportError", "ModuleNotFoundError"}:
                node.body = [ast.Pass()]
            return self.generic_visit(node)

    return ast.unparse(Remove().visit(ast.parse(source)))


def foreign_to_bilm(source):
    return [
        name
        for name in imports(without_optional_imports(source))
        if not name.startswith("elmo_plugin.bilm") and name.split(".")[0] not in BILM_MAY_IMPORT
    ]


def uses_training(source):
    training = ("elmo_plugin.training", "elmo_plugin.bilm.pretraining")
    return [name for name in imports(source) if name.startswith(training)]


@pytest.mark.parametrize(("path", "source"), sources(PACKAGE / "bilm"))
def test_bilm_imports_torch_numpy_and_h5py_only(path, source):
    assert foreign_to_bilm(source) == []


@pytest.mark.parametrize(("path", "source"), sources(PACKAGE / "models"))
def test_models_do_not_import_training(path, source):
    assert uses_training(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import allennlp",
        "def f():\n    from allennlp.common import Params",
        "from elmo_plugin.modules import elmo",
        "from elmo_plugin import compat",
        "import spacy",
        "try:\n    import spacy\nexcept ValueError:\n    pass",
    ],
)
def test_a_foreign_import_is_seen(source):
    assert foreign_to_bilm(source)


def test_an_import_of_training_is_seen():
    assert uses_training("from elmo_plugin.bilm import pretraining")
    assert uses_training("from elmo_plugin.training.checkpointer import save_atomically")


# --- the rooms of bilm/, from the lowest: an arrow points down only -------------------------------

ROOMS = {
    "kernels": (),
    "model": ("kernels",),
    "manylangs": ("model", "kernels"),
    "files": ("manylangs", "model", "kernels"),
    "pretraining": ("files", "model", "kernels"),
    "extraction": ("files", "model", "kernels"),
    "corpus": ("extraction", "files", "model", "kernels"),
    # The scorer reads a language model's softmax and vocabulary.
    "use": ("pretraining", "extraction", "files", "manylangs", "model", "kernels"),
}
# The model knows the kernels by this door alone.
DOOR = "elmo_plugin.bilm.kernels.backend"


def room_of(path):
    parts = Path(path).parts
    return parts[2] if parts[:2] == ("elmo_plugin", "bilm") and len(parts) > 3 else None


def out_of_order(path, source):
    """Imports of a room above, or past the door."""
    room = room_of(path)
    wrong = []
    for name in imports(source):
        other = name.split(".")[2] if name.startswith("elmo_plugin.bilm.") else room
        if other not in (room, *ROOMS[room]) or (
            room == "model" and other == "kernels" and not name.startswith(DOOR + ".")
        ):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize(
    ("path", "source"), [one for one in sources(PACKAGE / "bilm") if room_of(one[0]) is not None]
)
def test_the_order_of_the_rooms(path, source):
    assert out_of_order(path, source) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("elmo_plugin/bilm/kernels/fast.py", "from elmo_plugin.bilm.model.lstm import BiLstm"),
        ("elmo_plugin/bilm/model/bilm.py", "from elmo_plugin.bilm.files.names import find_options"),
        ("elmo_plugin/bilm/model/bilm.py", "from elmo_plugin.bilm.kernels.fast import lstm_layer"),
        ("elmo_plugin/bilm/model/bilm.py", "import elmo_plugin.bilm.kernels.quantized"),
        ("elmo_plugin/bilm/files/load.py", "from elmo_plugin.bilm.use.elmo import Elmo"),
    ],
)
def test_an_arrow_that_points_up_is_seen(path, source):
    assert out_of_order(path, source)


# Not bfloat16: the size of layer norm's guard against zero depends on the type, as in AllenNLP.
SPEED = ("is_cuda", "device.type", "mkldnn", "onednn", "fbgemm", "triton", "int8")


@pytest.mark.parametrize(("path", "source"), sources(PACKAGE / "bilm" / "model"))
def test_the_model_does_not_ask_for_devices_or_precision(path, source):
    """Docstrings may say what a `dtype` is."""
    code = ast.unparse(WithoutDocstrings().visit(ast.parse(source)))
    assert [word for word in SPEED if word in code] == []


class WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node):
        return ast.Pass() if isinstance(node.value, ast.Constant) else node


# --- private names -------------------------------------------------------------------------------

# What PyTorch and AllenNLP keep private and we have to reach, or the standard library offers so.
NOT_OURS = {"_replace", "_fields", "_asdict", "_make", "_version", "_field_defaults", "_exit"}


def private_names(source):
    """Private attributes and functions that a module makes."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    # `_` is what nobody reads, and spaCy's `doc._`.
    return {name for name in names if re.match("_[^_]", name)}


def reaches_into(source, private):
    """Private names of other modules that a module uses on something else than itself."""
    own, found = private_names(source), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "ctx")
            of_super = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
            if not of_self and not of_super and node.attr in private - own - NOT_OURS:
                found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("elmo_plugin"):
            found |= {one.name for one in node.names if re.match("_[^_]", one.name)}
    return found


def test_no_module_reaches_into_another_ones_private_names():
    private = {name for _, source in sources(PACKAGE) for name in private_names(source)}
    found = {path: reaches_into(source, private) for path, source in sources(PACKAGE)}
    # AllenNLP's FeedForward, which tells no other way.
    found["elmo_plugin/modules/coref/spans.py"] -= {"_dropout"}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "def f(bilm):\n    return bilm._carried",
        "from elmo_plugin.bilm.model.bilm import _bounded",
        "other._carried = None",
    ],
)
def test_reaching_in_is_seen(source):
    assert reaches_into(source, {"_carried"})


WITHOUT_ALLENNLP = """
import importlib, pkgutil, sys

HIDDEN = ("allennlp", "allennlp_models", "spacy", "transformers", "ray", "pyarrow")

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"{name} is hidden")

sys.meta_path.insert(0, Hidden())
try:
    import allennlp
except ModuleNotFoundError:
    import elmo_plugin
    quick = not {"torch", "ray", "pyarrow"} & set(sys.modules)
    assert quick, "import elmo_plugin is not quick"
    import elmo_plugin.bilm
    for module in pkgutil.walk_packages(elmo_plugin.bilm.__path__, "elmo_plugin.bilm."):
        importlib.import_module(module.name)
        print(module.name)
    for name, home in elmo_plugin._HOMES.items():
        if home.startswith("elmo_plugin.bilm"):
            getattr(elmo_plugin, name)
"""


def test_bilm_runs_where_allennlp_is_absent():
    child = subprocess.run(
        [sys.executable, "-c", WITHOUT_ALLENNLP], capture_output=True, text=True, cwd=ROOT
    )
    assert child.returncode == 0, child.stderr
    assert "elmo_plugin.bilm.files.weights" in child.stdout.split()


def test_the_public_names_are_those_that_editors_see():
    init = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    (typed,) = (
        node
        for node in init.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.asname: (node.module, alias.name)
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: (home, name) for name, home in elmo_plugin._HOMES.items()}
    assert set(elmo_plugin.__all__) == {"__version__", *seen} == set(dir(elmo_plugin))
    assert (PACKAGE / "py.typed").exists()


def test_the_plugin_imports_every_module_that_registers_something():
    modules = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): source
        for path, source in sources(PACKAGE)
    }
    child = run("import sys, elmo_plugin.plugin; print(*sys.modules)")
    assert child.returncode == 0, child.stderr
    reached = set(child.stdout.split())
    registering = {
        name
        for name, source in modules.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any(".register(" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert registering
    assert registering - reached == set()
