"""`import elmo_plugin` is enough for AllenNLP's configs and archives, in either order."""

from pathlib import Path

import pytest
from allennlp.data import DatasetReader
from allennlp.models import Model
from allennlp.predictors import Predictor
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.metrics import Metric

import elmo_plugin.plugin  # noqa: F401
from tests.cases import first_quick
from tests.fresh_process import allennlp, run
from tests.tiny_bilm import write

ARCHIVE = Path(__file__).parent / "archives" / "ner_8c5f6a4.tar.gz"
LOADED = f"""
archive = load_archive({str(ARCHIVE)!r})
print(type(archive.model).__module__, type(archive.dataset_reader).__module__)
"""
OURS = "elmo_plugin.models.crf_tagger elmo_plugin.data.readers.conll2003"


NAMES = {
    DatasetReader: ["conll2003", "coref", "snli", "srl", "sst_tokens", "squad", "squad1", "squad2"],
    LearningRateScheduler: ["staircase_decay"],
    Metric: ["conll_coref_scores", "conlleval", "mention_recall", "squad", "srl_eval"],
    Model: ["bcn", "bidaf_self_attention", "coref", "crf_tagger", "esim", "srl"],
}


@pytest.mark.parametrize(
    ("registry", "name"), [(one, name) for one, names in NAMES.items() for name in names]
)
def test_names_of_configs_give_the_plugins_classes(registry, name):
    found = registry.by_name(name)
    assert getattr(found, "__self__", found).__module__.startswith("elmo_plugin.")
    if registry is Model:
        predictor = Predictor.by_name(found.default_predictor)
        assert predictor.__module__.startswith("elmo_plugin.predictors.")


def python(code, folder=None):
    return run(code, folder=folder).stdout.strip()


def test_imported_before_allennlp_it_registers_its_classes(tmp_path):
    options, weights = write(tmp_path)
    found = python(
        "import elmo_plugin, sys\n"
        "assert 'allennlp' not in sys.modules\n"
        "from allennlp.common import Params\n"
        "from allennlp.modules import TokenEmbedder\n"
        "assert 'elmo_plugin.plugin' not in sys.modules\n"
        f"files = dict(options_file={options!r}, weight_file={weights!r})\n"
        "params = Params({'type': 'elmo_token_embedder', **files, 'state': 'reset'})\n"
        "print(type(TokenEmbedder.from_params(params)).__module__)"
    )
    assert found == "elmo_plugin.modules.token_embedder"


@first_quick("module", ["predictors.srl", "compat", "training.pretraining"])
def test_a_module_of_the_plugin_may_be_imported_first(module):
    found = python(
        f"import elmo_plugin.{module}\n"
        "from allennlp.models import Model\n"
        "from elmo_plugin.training.trainer import ResumableTrainer\n"
        "print(Model.by_name('srl').__module__)"
    )
    assert found == "elmo_plugin.models.srl"


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        "import elmo_plugin\nfrom allennlp.models.archival import load_archive",
        "from allennlp.models.archival import load_archive\nimport elmo_plugin",
    ],
    ids=["before", "after"],
)
def test_an_archive_loads_after_the_import(imports):
    assert python(imports + LOADED) == OURS


def test_two_threads_look_up_at_once():
    code = """
import elmo_plugin, threading, time
from allennlp.models import Model
found = []
def look_up(seconds):
    time.sleep(seconds)
    found.append(Model.by_name("bcn").__module__)
threads = [threading.Thread(target=look_up, args=[seconds]) for seconds in (0, 0.1, 0.3)]
[one.start() for one in threads], [one.join() for one in threads]
print(found)
"""
    assert python(code) == str(["elmo_plugin.models.bcn"] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elmo_plugin", "elmo_plugin.plugin"])
def test_a_plugins_file_may_hold_either_name(name, tmp_path):
    (tmp_path / ".allennlp_plugins").write_text(name + "\n")
    code = (
        "from allennlp.commands.subcommand import Subcommand\n"
        "from allennlp.common.plugins import import_plugins\n"
        "from allennlp.models import Model\n"
        "import_plugins()\n"
        "print(Model.by_name('crf_tagger').__module__, 'layer-weights' in "
        "Subcommand.list_available())"
    )
    assert python(code, folder=tmp_path) == "elmo_plugin.models.crf_tagger True"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elmo_plugin", "elmo_plugin.plugin"])
def test_force_keeps_foreign_files_whatever_names_the_plugin(repository, tmp_path, name):
    (tmp_path / ".allennlp_plugins").write_text(name + "\n")
    for folder in ("training_config", "examples", "elmo_plugin"):
        (tmp_path / folder).symlink_to(repository / folder)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    command = ["train", "training_config/bilm_tiny.jsonnet", "-s", "run", "--force"]
    allennlp(*command, folder=tmp_path)
    assert (tmp_path / "run.former" / "notes.txt").read_text() == "mine"


PLUGIN = "import elmo_plugin\n"
COMMANDS = """
from allennlp.commands.find_learning_rate import find_learning_rate_model
from allennlp.commands.train import train_model, train_model_from_file
from allennlp.common import Params
"""
FORCED = """
for call in (
    lambda: train_model_from_file(CONFIG, "run", force=True),
    lambda: train_model(Params.from_file(CONFIG), "run", force=True),
    lambda: find_learning_rate_model(Params.from_file(CONFIG), "run", force=True),
):
    try:
        call()
    except Exception as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("imports", [PLUGIN + COMMANDS, COMMANDS + PLUGIN], ids=["first", "last"])
def test_force_keeps_foreign_files_whenever_it_is_imported(repository, tmp_path, imports):
    (tmp_path / "examples").symlink_to(repository / "examples")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    config = str(repository / "training_config" / "bilm_tiny.jsonnet")
    said = python(f"{imports}CONFIG = {config!r}\n{FORCED}", folder=tmp_path).splitlines()
    # The second call would move its folder to a place that the first call has filled.
    assert (tmp_path / "run.former" / "notes.txt").read_text() == "mine"
    assert "run.former, which is there already" in said[-2]
    assert "no other command" in said[-1]
