"""Programs written for AllenNLP 0.9: the surface they touch, with AllenNLP and without."""

import json
import os
import sys
from pathlib import Path

import pytest

from elmo_plugin import ElmoEmbedder
from tests import fresh_process
from tests.cases import first_quick
from tests.fresh_process import run as python

# AllenNLP is installed here; so that it is not, its files are not found.
WITHOUT = """
import importlib.machinery
finder, find = importlib.machinery.PathFinder, importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] == "allennlp" else find(name, path, target)
finder.find_spec = staticmethod(find_spec)
"""
# What seqvec, flair's ELMoEmbeddings and supar's ELMoEmbedding do, less themselves.
PROGRAM = """
import json, pickle, sys
import allennlp.commands.elmo
from allennlp.commands.elmo import ElmoEmbedder
from allennlp.modules import Elmo
from allennlp.modules.elmo import Elmo as SameElmo, _ElmoBiLm, batch_to_ids

options, weights = sys.argv[1:]
assert Elmo is SameElmo
assert allennlp.commands.elmo.DEFAULT_OPTIONS_FILE.endswith("2xhighway_options.json")
assert allennlp.commands.elmo.DEFAULT_WEIGHT_FILE.endswith("2xhighway_weights.hdf5")
sentence = ["The", "cat", "sat"]
ee = ElmoEmbedder(options_file=options, weight_file=weights, cuda_device=None)
vectors = [ee.embed_batch([sentence])[0].tolist(), ee.embed_sentence(sentence).tolist()]

lstm = ee.elmo_bilm._elmo_lstm
shapes = [list(state.shape) for state in lstm._states]
ee = pickle.loads(pickle.dumps(ee))
ee.cuda_device = -1
ee.elmo_bilm.to(device="cpu")
ee.elmo_bilm._elmo_lstm._states = tuple(
    [state.to("cpu") for state in ee.elmo_bilm._elmo_lstm._states]
)
vectors.append(ee.embed_sentence(sentence).tolist())
ee.elmo_bilm._elmo_lstm._states = None
vectors.append(ee.embed_sentence(sentence).tolist())

elmo = Elmo(options, weights, num_output_representations=1, dropout=0, requires_grad=False,
            keep_sentence_boundaries=True)
mixed = elmo(batch_to_ids([sentence]))["elmo_representations"][0][0, 1:-1].tolist()
bilm = _ElmoBiLm(options, weights)
layers = [layer[0, 1:-1].tolist() for layer in bilm(batch_to_ids([sentence]))["activations"]]
modules = sorted(name for name in sys.modules if name.startswith("allennlp"))
found = dict(vectors=vectors, shapes=shapes, mixed=mixed, layers=layers, home=Elmo.__module__,
             name=__name__, file=__file__, modules=modules)
print(json.dumps(found))
"""  # fmt: skip


IMPORT = "import elmo_plugin.as_allennlp\n"
RUN = "import sys\nfrom elmo_plugin.__main__ import main\nmain(['run', *sys.argv[1:]])\n"


@first_quick(
    ("installed", "state"), [(False, "carry"), (True, "carry"), (False, "primed")], count=2
)
def test_a_program(installed, state, files, tmp_path):
    script = tmp_path / "old.py"
    script.write_text(PROGRAM)
    before = "" if installed else WITHOUT
    if state == "carry":
        child = python(before + RUN, script, *files)
    else:
        child = python(before + RUN, "--state", "primed", script, *files)
    found = json.loads(child.stdout)
    assert (found["name"], found["file"]) == ("__main__", str(script))
    embedder = ElmoEmbedder(*files, state=state)
    expected = [embedder.embed_sentence(["The", "cat", "sat"]) for _ in range(3)]
    for one, other in zip(found["vectors"], [*expected, expected[0]], strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    for one, other in zip(found["layers"], expected[0], strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    assert found["mixed"] == pytest.approx(expected[0].mean(axis=0), abs=1e-6)
    assert f"ElmoEmbedder with state '{state}'" in child.stderr
    assert found["shapes"] == ([[2, 1, 12], [2, 1, 20]] if state == "carry" else [])
    assert found["home"] == "elmo_plugin.bilm.use.old_programs"
    assert f"Elmo with state '{state}'" in child.stderr
    if not installed:
        assert found["modules"] == [
            "allennlp",
            "allennlp.commands",
            "allennlp.commands.elmo",
            "allennlp.modules",
            "allennlp.modules.elmo",
        ]


@pytest.mark.parametrize(
    "first",
    [IMPORT, "import allennlp.modules\n" + IMPORT, IMPORT + "import elmo_plugin.modules.elmo\n"],
)
def test_installed_allennlp_builds_it_from_a_config(first, files):
    """And AllenNLP's own token embedder keeps AllenNLP's class."""
    code = """
import json, sys
from allennlp.common import Params
from allennlp.modules import Elmo
from allennlp.modules.token_embedders import ElmoTokenEmbedder
files = dict(zip(("options_file", "weight_file"), sys.argv[1:]))
built = Elmo.from_params(Params({**files, "num_output_representations": 1}))
stock = ElmoTokenEmbedder(**files)._elmo
print([type(one).__module__ for one in (built, stock)], isinstance(built, type(stock)))
"""
    child = python(first + code, *files)
    assert child.stdout == "['elmo_plugin.bilm.use.old_programs', 'allennlp.modules.elmo'] True\n"


def test_the_first_line(files):
    """And the environment variable, and our own names, which stay as they are without AllenNLP."""
    code = WITHOUT + IMPORT + PROGRAM.replace("__file__", "None") + IMPORT
    code += "\nimport elmo_plugin\nprint(elmo_plugin.Elmo.__module__, len(sys.meta_path))\n"
    child = python(code, *files, ELMO_PLUGIN_STATE="reset")
    vectors, about = child.stdout.splitlines()
    expected = ElmoEmbedder(*files, state="reset").embed_sentence(["The", "cat", "sat"])
    for one in json.loads(vectors)["vectors"]:
        assert one == pytest.approx(expected, abs=1e-6)
    assert about.startswith("elmo_plugin.bilm.use.elmo ")
    assert "ElmoEmbedder with state 'reset'" in child.stderr
    child = python(code, *files, status=1, ELMO_PLUGIN_STATE="warm")
    assert "ValueError: ELMO_PLUGIN_STATE is 'warm', expected one of ('carry'," in child.stderr


def test_nothing_else_of_allennlp_is_there():
    code = "import importlib.util as u\nimport allennlp\nprint(allennlp.__version__)\n"
    code += "print(u.find_spec('allennlp.nn'), u.find_spec('allennlp.modules').origin)\n"
    refused = "from allennlp.modules import Seq2SeqEncoder\n"
    child = python(WITHOUT + IMPORT + code + refused, status=1)
    assert child.stdout.split() == ["0.9.0", "None", "elmo_plugin"]
    assert "ImportError: cannot import name 'Seq2SeqEncoder'" in child.stderr
    # And what is installed is not hidden.
    child = python(IMPORT + code)
    assert child.stdout.split()[0] == "2.10.1"
    assert "elmo_plugin" not in child.stdout.replace(str(Path.cwd()), "")


def test_run(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sys, beside\nprint(sys.argv, beside.x)\nsys.exit(3)\n")
    (tmp_path / "beside.py").write_text("x = 1\n")
    child = python(RUN, script, "--state", "-m", "x", status=3)
    assert child.stdout == f"{[str(script), '--state', '-m', 'x']} 1\n"
    script.write_text("import allennlp.commands.elmo\nraise KeyError('mine')\n")
    child = python(WITHOUT + RUN, script, status=1)
    assert "Traceback" in child.stderr
    assert "KeyError: 'mine'" in child.stderr
    module = "import os, sys\nos.chdir(sys.argv.pop(1))\n" + RUN
    (tmp_path / "program.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    assert python(module, tmp_path, "-m", "program", "-i", "x").stdout == "__main__ ['-i', 'x']\n"
    for kind, *program in (
        ("module", "-m", "no_such.module"), ("script", tmp_path / "none.py"), ("script", tmp_path)
    ):  # fmt: skip
        child = python(RUN, *program, status=1)
        said = f"there is no {kind} {program[-1]}; expected a script, or a module after -m\n"
        assert child.stderr == f"error: {said}"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import sys\nraise ValueError(sys.argv)\n")
    child = python(module, tmp_path, "-m", "package.program", "-i", status=1)
    assert "Traceback" in child.stderr
    assert "ValueError: ['package.program', '-i']" in child.stderr


URLS = """
from allennlp.commands.elmo import ElmoEmbedder
from allennlp.modules.elmo import Elmo, _ElmoBiLm
urls = [f"https://host.invalid/{name}" for name in ("options.json", "weights.hdf5")]
named = dict(zip(("options_file", "weight_file"), urls))
made = Elmo(*urls, 1), Elmo(num_output_representations=1, **named), _ElmoBiLm(*urls)
print([ElmoEmbedder(*urls), *(one.get_output_dim() for one in made)])
import tensorflow_hub
"""


def test_run_with_another_bilm_and_without_tensorflow_hub(tmp_path):
    (tmp_path / "program.py").write_text(URLS)
    program = WITHOUT + RUN, "--options-file", "embedded", tmp_path / "program.py"
    child = python(*program, status=1)
    embedder = "ElmoEmbedder('embedded', embedding_dim=512, state='carry')"
    assert child.stdout == f"[{embedder}, 512, 512, 512]\n"
    assert child.stderr.count("embedded in place of https://host.invalid/options.json") == 4
    assert child.stderr.splitlines()[-1].startswith("elmo_plugin: tensorflow_hub is not installed;")


POOL = """
import multiprocessing, sys
from allennlp.commands.elmo import ElmoEmbedder

def embed(word):
    return ElmoEmbedder(*sys.argv[2:]).embed_sentence([word]).sum().item()

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.map(embed, ["cat"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_processes_of_a_program_find_its_modules_too(method, files, tmp_path):
    """Where the environment has start-up code of its own, that is run as well."""
    (tmp_path / "pool.py").write_text(POOL)
    (tmp_path / "site").mkdir()
    started = tmp_path / "started"
    (tmp_path / "site" / "sitecustomize.py").write_text(f"open({str(started)!r}, 'a').write('+')")
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    arguments = "-m", "elmo_plugin", "run", tmp_path / "pool.py", method, *files
    child = fresh_process.python(*arguments, PYTHONPATH=path)
    (found,) = json.loads(child.stdout)
    expected = ElmoEmbedder(*files, state="reset").embed_sentence(["cat"]).sum()
    assert found == pytest.approx(expected, abs=1e-4)
    assert started.read_text() >= "++"
    assert "Error in sitecustomize" not in child.stderr
