"""Archives of each model move between here and allennlp-models, with the same outputs."""

import json

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.util import sanitize
from allennlp.models import load_archive

from tests.cases import assert_close
from tests.fresh_process import run
from tests.models import coref_cases
from tests.models.tasks import EMBEDDING_DIM, bcn, embedder, esim, ner, srl, write_bilm

pytest.importorskip(
    "allennlp_models", reason="allennlp-models is not installed; `make peers` installs it apart"
)
pytestmark = pytest.mark.peers

INDEXERS = {"tokens": "single_id", "elmo": "elmo_characters"}
# Runs with allennlp-models alone, the plugin not even importable.
STOCK = """
import json, sys
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.util import import_module_and_submodules, sanitize
from allennlp.models import Model, load_archive

import_module_and_submodules("allennlp_models")
data, number = sys.argv[1], int(sys.argv[2])
train_model(Params.from_file("config.json"), "theirs")
found = {}
for maker in ("ours", "theirs"):
    archive = load_archive(maker)
    assert type(archive.model).__module__.startswith("allennlp_models.")
    instances = list(archive.dataset_reader.read(data))[:number]
    outputs = archive.model.eval().forward_on_instances(instances)
    found[maker] = sanitize([outputs, archive.model.get_metrics()])
assert "elmo_plugin" not in sys.modules
print(json.dumps(found))
"""


def configurations(bilm):
    """Reader, data and model, by the model's name."""
    at_both = {"use_input_elmo": True, "use_integrator_output_elmo": True}
    return {
        "esim": (
            {
                "type": "snli",
                "tokenizer": "just_spaces",
                "token_indexers": {"elmo": INDEXERS["elmo"]},
            },
            "snli/dev.jsonl",
            esim(EMBEDDING_DIM, text_field_embedder=embedder(words=False, elmo=bilm)),
        ),
        "bcn": (
            {"type": "sst_tokens", "tokenizer": "just_spaces", "token_indexers": INDEXERS},
            "sst/dev.txt",
            bcn(
                5 + EMBEDDING_DIM,
                4 + EMBEDDING_DIM,
                elmo={**bilm, "num_output_representations": 2},
                **at_both,
            ),
        ),
        "crf_tagger": (
            {
                "type": "conll2003",
                "convert_to_coding_scheme": "BIOUL",
                "token_indexers": INDEXERS,
            },
            "ner/dev.txt",
            ner(
                5 + EMBEDDING_DIM,
                label_encoding="BIOUL",
                text_field_embedder=embedder(elmo=bilm),
            ),
        ),
        "srl": ({"type": "srl"}, "srl/dev", srl()),
        "coref": (
            {"type": "coref", "max_span_width": coref_cases.MAX_SPAN_WIDTH},
            "coref/dev.gold_conll",
            coref_cases.config(coarse_to_fine=True, inference_order=2),
        ),
    }


@pytest.mark.parametrize(
    ("name", "number"), [("esim", 20), ("bcn", 20), ("crf_tagger", 20), ("srl", 70), ("coref", 10)]
)
def test_archives_move_both_ways(name, number, tmp_path, repository):
    reader, path, model = configurations(write_bilm(tmp_path))[name]
    data = str(repository / "examples" / path)
    config = {
        "dataset_reader": reader,
        "train_data_path": data,
        "model": model,
        "data_loader": {"batch_size": 2 if name == "coref" else 32, "shuffle": True},
        "trainer": {"num_epochs": 1, "optimizer": "adam", "cuda_device": -1},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    train_model(Params.from_file(tmp_path / "config.json"), tmp_path / "ours")
    theirs = json.loads(run(STOCK, data, number, folder=tmp_path).stdout.splitlines()[-1])
    for maker in ("ours", "theirs"):
        archive = load_archive(tmp_path / maker)
        assert type(archive.model).__module__ == f"elmo_plugin.models.{name}"
        instances = list(archive.dataset_reader.read(data))[:number]
        assert len(instances) == number
        outputs = archive.model.eval().forward_on_instances(instances)
        expected, metrics = theirs[maker]
        for output, one in zip(sanitize(outputs), expected, strict=True):
            assert output.keys() - {"probabilities"} == one.keys()
            assert_close({key: output[key] for key in one}, one)
        assert_close(sanitize(archive.model.get_metrics()), metrics)
