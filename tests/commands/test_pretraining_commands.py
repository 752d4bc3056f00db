import json
import re
import shutil
from collections import Counter

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin import ElmoEmbedder, LanguageScorer, load_bilm
from elmo_plugin.__main__ import main
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax, load_softmax
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary
from tests.hdf5 import arrays
from tests.sample_pretraining import SMALL, sample


@pytest.fixture
def shards(tmp_path):
    (tmp_path / "a.txt").write_text("b a b é\nc b a zebra\n")
    (tmp_path / "b.txt").write_text("é é c\nd c a a\n")
    return sorted(tmp_path.glob("?.txt"))


@pytest.mark.parametrize("options", [[], ["--min-count", "2"], ["--max-size", "5"]])
def test_the_vocabulary_is_the_most_frequent_words(shards, tmp_path, options):
    out = tmp_path / "vocabulary.txt"
    main(["vocabulary", str(tmp_path / "?.txt"), str(out), *options])
    numbers = {"--min-count": {"min_count": 2}, "--max-size": {"max_size": 5}}
    counts = Counter(word for path in shards for word in path.read_text().split())
    expected = WordVocabulary.from_counts(counts, **(numbers[options[0]] if options else {}))
    assert WordVocabulary.from_file(out).words == expected.words
    assert expected.words[3:5] == ["a", "b"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    loaders = {"data_loader.batches_per_epoch": 2, "validation_data_loader.batch_size": 16}
    config = sample(**SMALL, **loaders, **{"trainer.num_epochs": 2, "trainer.checkpointer": {}})
    directory = tmp_path_factory.mktemp("run") / "out"
    train_model(Params(config), str(directory))
    return directory


def contents(path):
    return {name: torch.from_numpy(array) for name, array in arrays(path).items()}


def test_the_export_of_a_finished_run_is_its_best_epochs(run, tmp_path, capsys):
    assert json.loads((run / "metrics.json").read_text())["best_epoch"] == 1
    named = json.loads((run / "config.json").read_text())
    for part in (named, named["model"]):  # no type is needed
        part.pop("type", None)
    (run / "config.json").write_text(json.dumps(named))
    main(["export-bilm", str(run), str(tmp_path / "out")])
    for name in ("weights.hdf5", "softmax.hdf5"):
        own, exported = contents(run / name), contents(tmp_path / "out" / name)
        assert own.keys() == exported.keys()
        assert all(torch.equal(own[key], exported[key]) for key in own)
    for name in ("options.json", "vocabulary.txt"):
        assert (run / name).read_text() == (tmp_path / "out" / name).read_text()
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    own = json.loads((run / "card.json").read_text())
    assert card == {**own, "checkpoint": "best.th"}
    assert "the best epoch's weights of a finished run (best.th: epoch 1, step 4)" in (
        capsys.readouterr().out
    )


def test_an_export_as_safetensors_is_the_same_bilm(run, tmp_path):
    out = tmp_path / "out"
    main(["export-bilm", str(run), str(out), "--format", "safetensors"])
    files = {"config.json", "model.safetensors", "tokenizer_config.json"}
    assert {path.name for path in out.iterdir()} == {
        *files,
        *("card.json", "softmax.hdf5", "vocabulary.txt"),
    }
    assert str(run.parent) not in (out / "card.json").read_text()
    expected, found = load_bilm(run).state_dict(), load_bilm(out).state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in found)
    scores = list(LanguageScorer(run).score([["the", "cat"]]))
    shared = shutil.make_archive(str(tmp_path / "shared"), "zip", out)
    for folder in (out, shared):
        assert list(LanguageScorer(folder).score([["the", "cat"]])) == scores
    layers = ElmoEmbedder(run).embed_sentence(["the"])
    assert (ElmoEmbedder(shared).embed_sentence(["the"]) == layers).all()


def test_a_finished_run_that_was_made_longer_is_not_finished(run, tmp_path, capsys):
    """Its best weights may be newer than its card."""
    shutil.copytree(run, tmp_path / "longer")
    newer = tmp_path / "longer" / "checkpoint_e2_b1.th"
    shutil.copy(run / "checkpoint_e2_b0.th", newer)
    main(["export-bilm", str(tmp_path / "longer"), str(tmp_path / "out")])
    expected = "checkpoint_e2_b1.th (after 2 epochs, step 4) of a run that is not finished"
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("int8", 0.02)])
def test_the_softmax_of_the_most_frequent_words_alone(run, tmp_path, dtype, tolerance):
    """Beside a biLM that is there already: the rows of the first words, and nothing else."""
    out = tmp_path / "out"
    arguments = ["--max-words", "50", "--softmax-dtype", dtype, "--softmax-only"]
    main(["export-bilm", str(run), str(out), *arguments])
    assert {path.name for path in out.iterdir()} == {"softmax.hdf5", "vocabulary.txt"}
    words = WordVocabulary.from_file(run / "vocabulary.txt").words
    assert WordVocabulary.from_file(out / "vocabulary.txt").words == words[:50]
    whole, part = WordSoftmax(len(words), 4), WordSoftmax(50, 4)
    load_softmax(whole, run / "softmax.hdf5")
    load_softmax(part, out / "softmax.hdf5")
    torch.testing.assert_close(part.weight, whole.weight[:50], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(part.bias, whole.bias[:50], atol=1e-3, rtol=1e-3)
    assert contents(out / "softmax.hdf5")["softmax/W"].dtype == getattr(torch, dtype)


def test_any_checkpoint_can_be_exported_in_float16(run, tmp_path):
    out = tmp_path / "out"
    name = "checkpoint_e1_b0.th"
    main(["export-bilm", str(run), str(out), "--checkpoint", name, "--dtype", "float16"])
    exported = contents(out / "weights.hdf5")
    assert exported["char_embed"].dtype == torch.float16
    card = json.loads((out / "card.json").read_text())
    assert (card["checkpoint"], card["run"], card["steps"]) == (name, "finished later", 2)
    state = torch.load(run / name, weights_only=True)["model"]
    table = state["language_model.bilm._token_embedder._char_embedding_weights"][1:]
    torch.testing.assert_close(exported["char_embed"].float(), table, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "more"), [("options.json", []), ("card.json", []), ("vocabulary.txt", ["--softmax-o"])]
)
def test_an_export_replaces_no_file_without_force(run, tmp_path, capsys, name, more):
    (tmp_path / name).write_text("mine")
    with pytest.raises(SystemExit):
        main(["export-bilm", str(run), str(tmp_path), *more])
    assert f"{name} exists, expected a new file; --force replaces it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda run, tmp: [str(tmp), str(tmp / "out")], "has no config.json"),
        (
            lambda run, tmp: [str(run), str(tmp / "out"), "--checkpoint", "checkpoint_e9_b0.th"],
            "there is no checkpoint .*checkpoint_e9_b0.th",
        ),
        (
            lambda run, tmp: [str(run), str(tmp / "out"), "--checkpoint", "metrics.json"],
            "metrics.json is not an intact checkpoint",
        ),
        (lambda run, tmp: [str(run), str(run)], "is the run's own folder, expected another"),
    ],
)
def test_what_cannot_be_exported_is_one_line(run, tmp_path, error_line, make, message):
    assert re.search(message, error_line("export-bilm", *make(run, tmp_path)))


@pytest.mark.parametrize("content", ['{"steps": 1', "", "[1]", "NaN", '{"metrics": [1]}'])
def test_a_damaged_card_is_one_line(run, tmp_path, capsys, content):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "card.json").write_text(content)
    with pytest.raises(SystemExit) as stopped:
        main(["export-bilm", str(tmp_path / "run"), str(tmp_path / "out")])
    assert "card.json is damaged: " in f"{stopped.value}{capsys.readouterr().err}"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[" * 100_000,
        "[]",
        "{}",
        '{"model": "x"}',
        '{"model": {}}',
        '{"model": {"options": 3}}',
        '{"model": {"options": {}}}',
        '{"model": {"type": "srl"}}',
    ],
)
def test_another_config_is_one_line(run, tmp_path, error_line, content):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(content)
    error = error_line("export-bilm", tmp_path / "run", tmp_path / "out")
    assert re.match(rf"error: {tmp_path}/run/config\.json\b", error)
