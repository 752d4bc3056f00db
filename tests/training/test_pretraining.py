"""The job `bilm_tiny.jsonnet`, from text to files that AllenNLP's own ELMo reads."""

import json
import math

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import Elmo as AllenNlpElmo

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.pretraining.language_model import LanguageModel, loss_metrics, sum_of_losses
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax, load_softmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary
from elmo_plugin.bilm.use.elmo import Elmo
from tests.sample_pretraining import sample

EXPORTED = {"options.json", "weights.hdf5", "vocabulary.txt", "softmax.hdf5", "card.json"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two epochs of it."""
    directory = tmp_path_factory.mktemp("run") / "out"
    train_model(Params(sample("bilm_tiny", **{"trainer.num_epochs": 2})), str(directory))
    return directory


def test_the_job_learns_and_says_so(run):
    metrics = json.loads((run / "metrics.json").read_text())
    first = json.loads((run / "metrics_epoch_0.json").read_text())
    num_words = len(WordVocabulary.from_file(run / "vocabulary.txt"))
    assert metrics["best_validation_perplexity"] < first["validation_perplexity"] < num_words / 3
    forward, backward = (
        metrics[f"validation_{direction}_perplexity"] for direction in ("forward", "backward")
    )
    assert metrics["validation_perplexity"] == pytest.approx(math.sqrt(forward * backward))
    assert math.exp(metrics["validation_loss"]) == pytest.approx(metrics["validation_perplexity"])


def test_the_job_leaves_what_elmo_needs(run, repository):
    assert {path.name for path in run.iterdir()} >= EXPORTED
    words = (run / "vocabulary.txt").read_text().splitlines()
    assert tuple(words[:3]) == SPECIAL_WORDS
    counts = (repository / "examples/text/train.txt").read_text().split()
    assert words[3] == max(set(counts), key=counts.count)
    card = json.loads((run / "card.json").read_text())
    assert card["steps"] == 2 * 31
    assert card["metrics"]["validation_perplexity"] > 1


def test_allennlps_own_elmo_reads_the_export(run):
    files = str(run / "options.json"), str(run / "weights.hdf5")
    theirs, ours = AllenNlpElmo(*files, 1, dropout=0.0), Elmo(*files, 1, dropout=0.0)
    ids = batch_to_ids([["The", "miller", "came", "."], ["Snow", "lay"]])
    expected = theirs(ids)["elmo_representations"][0]
    assert expected.shape == (2, 4, 64)
    torch.testing.assert_close(ours(ids)["elmo_representations"][0], expected, atol=1e-6, rtol=1e-5)
    assert expected[0].std() > 0.01


def test_the_exported_files_have_the_perplexity_that_the_run_reports(run, repository):
    heldout = repository / "examples/text/heldout.txt"
    best = json.loads((run / "metrics.json").read_text())
    words = WordVocabulary.from_file(run / "vocabulary.txt")
    softmax = WordSoftmax(len(words), 32)
    load_softmax(softmax, run / "softmax.hdf5")
    bilm = load_bilm(str(run / "options.json"), str(run / "weights.hdf5"))
    batches = StreamLoader([heldout], batch_size=4, num_steps=20, shuffle=False).pairs(words)
    forward, backward, count = sum_of_losses(LanguageModel(bilm, softmax), batches)
    again = loss_metrics(forward / count, backward / count, sampled=False)
    for name in ("forward_perplexity", "backward_perplexity"):
        assert best[f"best_validation_{name}"] == pytest.approx(again[name], rel=1e-5)


def test_a_config_with_the_types_of_its_parts_trains_through_allennlp(repository, tmp_path):
    """As they had in version 0.2, and none for the whole."""
    config = {
        "dataset_reader": {"type": "bilm_text"},
        "vocabulary": {"type": "bilm_words"},
        "datasets_for_vocab_creation": ["train"],
        "train_data_path": str(repository / "examples/text/train.txt"),
        "model": {
            "type": "bilm_language_model",
            "options": {
                "lstm": {"dim": 8, "projection_dim": 4, "n_layers": 1},
                "char_cnn": {
                    "activation": "relu",
                    "embedding": {"dim": 4},
                    "filters": [[1, 4]],
                    "n_highway": 1,
                    "n_characters": 262,
                    "max_characters_per_token": 50,
                },
            },
        },
        "data_loader": {"type": "token_streams", "batch_size": 4, "batches_per_epoch": 2},
        "trainer": {
            "type": "bilm_pretraining",
            "num_epochs": 1,
            "cuda_device": -1,
            "optimizer": {"type": "sgd", "lr": 0.1},
        },
    }
    train_model(Params(config), str(tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} >= EXPORTED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distributed": {"cuda_devices": [0, 1]}}, "torchrun --nproc-per-node N -m elmo_plugin"),
        ({"test_data_path": "x"}, "the key 'test_data_path' is unknown"),
        ({"trainer": {"type": "gradient_descent"}}, "trainer.type is 'gradient_descent', expected"),
    ],
)
def test_what_pretraining_cannot_do_is_said(tmp_path, changes, message):
    config = {**sample("bilm_tiny"), **changes}
    with pytest.raises(ConfigurationError, match=message):
        train_model(Params(config), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_dry_run_makes_no_folder(tmp_path):
    train_model(Params(sample("bilm_tiny")), str(tmp_path / "out"), dry_run=True)
    assert not (tmp_path / "out").exists()


def test_no_text_is_an_error_that_names_the_pattern(tmp_path):
    config = sample("bilm_tiny", train_data_path=str(tmp_path / "*.txt"))
    with pytest.raises(ConfigurationError, match=r"there is no text file .*\*\.txt"):
        train_model(Params(config), str(tmp_path / "out"))
