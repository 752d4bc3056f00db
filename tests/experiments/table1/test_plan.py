import gzip
import itertools
import json
import os

import pytest
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.models import Model

import elmo_plugin.plugin  # noqa: F401
from experiments.table1.plan import BASELINE, CONFIGS, ELMO, Run, check_data, config, plan
from experiments.table1.tasks import TASKS
from tests.cases import first_quick


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt.gz"
    with gzip.open(path, "wt") as file:
        file.write(f"the{' 0.1' * 100}\n")
    return str(path)


def test_one_seed_of_everything_comes_before_the_next():
    runs = plan(["ner", "snli"], 2, [0.1, 1.0])
    assert len(set(runs)) == len(runs) == 2 * 2 * 2 * 2
    assert [run.seed for run in runs] == [1] * 4 + [2] * 4 + [1] * 4 + [2] * 4
    assert [run.fraction for run in runs] == [1] * 8 + [0.1] * 8
    assert runs[:4] == [
        Run(task, arm, 1, 1) for task in ("ner", "snli") for arm in (BASELINE, ELMO)
    ]


def test_seeds_of_single_tasks():
    runs = plan(["ner", "snli"], {"ner": 3, "snli": 1, "coref": 9})
    assert [run.seed for run in runs if run.task == "ner"] == [1, 1, 2, 2, 3, 3]
    assert [run.seed for run in runs if run.task == "snli"] == [1, 1]


def test_variants_of_the_largest_part():
    runs = plan(["ner", "snli"], 1, [0.1, 0.5], ["mix", "placement", "state"])
    extra = [run for run in runs if run.arm not in (BASELINE, ELMO)]
    assert {run.fraction for run in extra} == {0.5}
    assert {run.arm for run in extra if run.task == "snli"} - {
        run.arm for run in extra if run.task == "ner"
    } == {"output", "both"}


def test_the_papers_data_has_no_placements(monkeypatch):
    for name in TASKS["snli"].variables:
        monkeypatch.setenv(name, "somewhere")
    runs = plan(["snli", "sst5"], 1, variants=["placement"])
    assert {run.task for run in runs if run.arm == "both"} == {"sst5"}


def test_fewer_seeds_of_variants():
    runs = plan(["ner", "sst5"], 3, [0.1, 1], ["mix", "placement"], variant_seeds=1)
    further = [run for run in runs if run.fraction < 1 or run.arm not in (BASELINE, ELMO)]
    assert {run.seed for run in further} == {1}
    assert further == [run for run in plan(["ner", "sst5"], 1, [0.1, 1], ["mix", "placement"])
                       if run in further]  # fmt: skip
    assert sum(run not in further for run in runs) == 2 * 2 * 3


def test_a_variant_that_is_asked_for_twice():
    assert plan(["sst5"], 1, variants=["mix", "mix"]) == plan(["sst5"], 1, variants=["mix"])


def test_folders_differ():
    runs = plan(list(TASKS), 3, [0.01, 0.1, 1], ["mix", "placement", "state"])
    assert len({run.folder for run in runs}) == len(runs)


def test_every_stand_in_config_is_some_runs():
    named = {
        task.config + suffix
        for task in TASKS.values()
        for suffix in ("", "_elmo", *(f"_elmo_{place}" for place in task.placements))
    }
    assert {path.stem for path in CONFIGS.glob("*.jsonnet")} == named


@first_quick(
    ("task", "arm"),
    [
        *itertools.product(TASKS, [BASELINE]),
        *itertools.product(TASKS, [ELMO]),
        *((name, arm) for name, task in TASKS.items() for arm in task.placements),
    ],
    count=len(TASKS) + 2,
)
def test_its_model_fits_together(task, arm, vectors, monkeypatch):
    """Dimensions are checked by the constructors; both rows have the same word vectors."""
    values = config(Run(task, arm, 1, 3), "/data", vectors)
    assert values["random_seed"] == values["numpy_seed"] == values["pytorch_seed"] == 3
    assert "/data/" in values["train_data_path"]
    assert vectors in json.dumps(values["model"])
    assert vectors in json.dumps(values["vocabulary"])
    vocab = Vocabulary(non_padded_namespaces=["labels"])
    for namespace in ("tokens", "glove"):
        vocab.add_token_to_namespace("the", namespace)
    for label in ("O", "B-X", "I-X", "L-X", "U-X"):
        vocab.add_token_to_namespace(label, "labels")
    params = Params(values["model"])
    if task == "sst5":
        params["output_layer"] = {**params["output_layer"].as_dict(), "output_dims": [256, 128, 5]}
    model = Model.from_params(vocab=vocab, params=params)
    assert any("scalar_parameters" in name for name, _ in model.named_parameters()) == (
        arm != BASELINE
    )


def elmo_of(values):
    return values["model"]["text_field_embedder"]["token_embedders"]["elmo"]


def test_variants_change_one_thing(vectors):
    plain = config(Run("ner", ELMO, 1, 1), "/data", vectors)
    assert (
        elmo_of(config(Run("ner", "last", 1, 1), "/d", vectors))["scalar_mix_parameters"][-1] == 1
    )
    penalized = config(Run("ner", "lambda-0.001", 1, 1), "/d", vectors)["model"]["regularizer"]
    assert penalized["regexes"] == [["scalar_parameters", {"type": "l2", "alpha": 0.001}]]
    carried = elmo_of(config(Run("ner", "carry", 1, 1), "/d", vectors))
    assert (carried["state"], "cache" in carried) == ("carry", False)
    reset = config(Run("ner", "reset", 1, 1), "/data", vectors)
    elmo_of(reset)["state"] = elmo_of(plain)["state"]
    assert reset == plain


def test_a_part_is_of_training_alone(vectors):
    values = config(Run("ner", BASELINE, 0.1, 2), "/d", vectors, {"trainer.num_epochs": 1})
    reader = values["dataset_reader"]
    assert (reader["type"], reader["fraction"], reader["seed"]) == ("sampled", 0.1, 2)
    assert values["validation_dataset_reader"] == reader["reader"]
    assert values["trainer"]["num_epochs"] == 1
    # AllenNLP's default, a GPU where there is one.
    assert "cuda_device" not in values["trainer"]
    given = config(Run("ner", BASELINE, 1, 2), "/d", vectors, {"trainer.cuda_device": -1})
    assert given["trainer"]["cuda_device"] == -1


@pytest.mark.parametrize(
    ("fraction", "longer", "times"), [(1, True, 1), (0.25, True, 2), (0.25, False, 1)]
)
def test_a_part_has_more_epochs(fraction, longer, times, vectors):
    whole = config(Run("ner", ELMO, 1, 1), "/d", vectors)["trainer"]
    part = config(Run("ner", ELMO, fraction, 1), "/d", vectors, longer=longer)["trainer"]
    expected = {name: times * whole[name] for name in ("num_epochs", "patience")}
    assert part == {**whole, **expected}


def test_where_the_stand_ins_are_is_not_asked_of_the_environment(vectors, monkeypatch):
    monkeypatch.setenv("STAND_IN_DATA", "/elsewhere")
    monkeypatch.delenv("STAND_IN_VECTORS", raising=False)
    values = config(Run("ner", BASELINE, 1, 1), "/d", vectors)
    assert values["train_data_path"].startswith("/d/")
    assert os.environ["STAND_IN_DATA"] == "/elsewhere"
    assert "STAND_IN_VECTORS" not in os.environ


def test_the_papers_data_where_the_environment_has_it(vectors, monkeypatch, tmp_path):
    for name in TASKS["ner"].variables:
        (tmp_path / name).touch()
        monkeypatch.setenv(name, str(tmp_path / name))
    values = config(Run("ner", ELMO, 1, 1), "/d", vectors)
    assert values["train_data_path"] == str(tmp_path / "NER_TRAIN_DATA_PATH")
    assert values["evaluate_on_test"] is True
    assert elmo_of(values)["pretrained_file"] == "original"
    assert check_data(["ner"], str(tmp_path), "nowhere") == [
        f"ner: the paper's data, from {', '.join(TASKS['ner'].variables)}"
    ]
    monkeypatch.setenv("NER_TEST_A_PATH", "https://example.org/eng.testa")
    assert check_data(["ner"], str(tmp_path), "nowhere")
    monkeypatch.setenv("NER_TEST_B_PATH", "/typo")
    with pytest.raises(ValueError, match="NER_TEST_B_PATH is /typo, which is not there"):
        check_data(["ner"], str(tmp_path), "nowhere")


def test_missing_data(tmp_path, vectors):
    with pytest.raises(ValueError, match="wikigold is not there, expected the folder of WikiGold"):
        check_data(["ner"], str(tmp_path), vectors)
    (tmp_path / "wikigold").mkdir()
    assert check_data(["ner"], str(tmp_path), vectors) == ["ner: the stand-in WikiGold"]
    with pytest.raises(ValueError, match=r"word vectors .*nothing are not there.*--vectors"):
        check_data(["ner"], str(tmp_path), str(tmp_path / "nothing"))
