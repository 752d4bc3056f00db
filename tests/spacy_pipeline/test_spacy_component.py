"""The component `elmo`: layers on a Doc, saved pipelines, what spaCy finds by itself."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import spacy
import torch
from spacy.tokens import Doc

import elmo_plugin.spacy.component
import elmo_plugin.spacy.mix  # noqa: F401
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from elmo_plugin.spacy.component import ElmoComponent
from tests.many_langs_model import write_many_langs

ROOT = Path(__file__).parents[2]
SENTENCES = [["Anna", "went", "home", "."], ["It", "rained"], ["Überraschung", "!", "?"]]


@pytest.fixture
def pipeline(bilm_files):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config=bilm_files)
    return nlp


def doc_of(nlp, words, sent_starts=None):
    return Doc(nlp.vocab, words=words, sent_starts=sent_starts)


def test_layers_are_the_embedders(pipeline, bilm_files):
    embedder = ElmoEmbedder(*bilm_files.values())
    for words in SENTENCES:
        doc = pipeline(doc_of(pipeline, words))
        expected = embedder.embed_sentence(words)
        numpy.testing.assert_allclose(doc._.elmo, expected, atol=1e-6)
        numpy.testing.assert_allclose(doc.tensor, expected.mean(axis=0), atol=1e-6)


def test_sentences_are_the_docs_and_white_space_is_left_out(pipeline, bilm_files):
    embedder = ElmoEmbedder(*bilm_files.values())
    words = [*SENTENCES[0], "\n\n", *SENTENCES[1]]
    starts = [True, False, False, False, False, True, False]
    doc = pipeline(doc_of(pipeline, words, starts))
    first, second = (embedder.embed_sentence(words) for words in SENTENCES[:2])
    numpy.testing.assert_allclose(doc._.elmo[:, :4], first, atol=1e-6)
    numpy.testing.assert_allclose(doc._.elmo[:, 5:], second, atol=1e-6)
    assert not doc._.elmo[:, 4].any()
    # Without sentences the Doc is one.
    doc = pipeline(doc_of(pipeline, words))
    whole = embedder.embed_sentence([*SENTENCES[0], *SENTENCES[1]])
    numpy.testing.assert_allclose(doc._.elmo[:, [0, 1, 2, 3, 5, 6]], whole, atol=1e-6)
    for empty in ([], [" ", "\n"]):
        doc = pipeline(doc_of(pipeline, empty))
        assert doc._.elmo.shape == (3, len(empty), 12)
        assert not doc._.elmo.any()


@pytest.mark.parametrize("config", [{"max_tokens": 5}, {"cache": "memory"}, {"state": "reset"}])
def test_batches_chunks_and_cache_change_nothing(bilm_files, config):
    nlp = spacy.blank("en")
    component = nlp.add_pipe("elmo", config={**bilm_files, **config})
    texts = [*SENTENCES, ["a", "longer", "one", "of", "more", "than", "five", "tokens"], []]
    alone = [nlp(doc_of(nlp, words))._.elmo for words in texts]
    docs = component.pipe((doc_of(nlp, words) for words in texts), batch_size=3)
    for doc, expected in zip(docs, alone, strict=True):
        numpy.testing.assert_allclose(doc._.elmo, expected, atol=1e-6)
    embedder = ElmoEmbedder(*bilm_files.values(), state=config.get("state", "primed"))
    numpy.testing.assert_allclose(alone[3], embedder.embed_sentence(texts[3]), atol=1e-6)


def test_with_a_cache_each_sentence_is_run_once(bilm_files, monkeypatch):
    rows = []
    run = BiLm.run
    monkeypatch.setattr(
        BiLm, "run", lambda self, ids, *rest: rows.append(len(ids)) or run(self, ids, *rest)
    )
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={**bilm_files, "state": "reset", "cache": "memory"})
    for _ in range(3):
        for words in SENTENCES:
            nlp(doc_of(nlp, words))
    assert sum(rows) == len(SENTENCES)


def test_merged_and_split_tokens_keep_their_vectors(pipeline):
    doc = pipeline(doc_of(pipeline, SENTENCES[0]))
    before = doc._.elmo.copy()
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    assert doc._.elmo.shape == (3, 3, 12)
    numpy.testing.assert_allclose(doc._.elmo[:, 0], before[:, :2].mean(axis=1), atol=1e-6)
    numpy.testing.assert_array_equal(doc._.elmo[:, 1:], before[:, 2:])
    with doc.retokenize() as retokenizer:
        retokenizer.split(doc[1], ["ho", "me"], heads=[(doc[1], 0), (doc[1], 1)])
    assert [token.text for token in doc] == ["Anna went", "ho", "me", "."]
    for column, origin in ((1, 2), (2, 2), (3, 3)):
        numpy.testing.assert_array_equal(doc._.elmo[:, column], before[:, origin])
    kept = Doc(pipeline.vocab).from_bytes(doc.to_bytes())
    numpy.testing.assert_array_equal(kept._.elmo, doc._.elmo)


def test_vectors_of_another_text_are_refused(pipeline):
    doc = pipeline(doc_of(pipeline, SENTENCES[0]))
    part = Doc(pipeline.vocab, words=SENTENCES[1], user_data=doc.user_data)
    with pytest.raises(ValueError, match="4 tokens of another text, expected those of this Doc's"):
        assert part._.elmo
    assert doc_of(pipeline, SENTENCES[0])._.elmo is None


@pytest.mark.slow
def test_several_processes_after_a_first_use(bilm_files):
    code = (
        "import spacy, sys, torch\n"
        "torch.set_num_threads(2)\n"
        "nlp = spacy.blank('en')\n"
        "nlp.add_pipe('elmo', config=dict(options_file=sys.argv[1], weight_file=sys.argv[2]))\n"
        "texts = ['Anna went home .', 'It rained'] * 40\n"
        "torch.randn(700, 700) @ torch.randn(700, 700)\n"
        "first = [doc._.elmo for doc in nlp.pipe(texts)]\n"
        "again = [doc._.elmo for doc in nlp.pipe(texts, n_process=2, batch_size=8)]\n"
        "print(all(abs(one - other).max() < 1e-6 for one, other in zip(first, again)))\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", "import elmo_plugin.spacy.component\n" + code, *bilm_files.values()],
        capture_output=True,
        text=True,
    )
    assert child.stdout.strip() == "True", child.stderr[-2000:]


def test_saved_and_loaded_without_the_biLMs_files(pipeline, bilm_files, tmp_path):
    doc = pipeline(doc_of(pipeline, SENTENCES[0]))
    pipeline.to_disk(tmp_path / "saved")
    data = pipeline.to_bytes()
    for path in bilm_files.values():
        Path(path).unlink()
    (tmp_path / "saved").rename(tmp_path / "moved")
    loaded = spacy.load(tmp_path / "moved")
    other = spacy.blank("en")
    other.add_pipe("elmo", config=bilm_files)
    other.from_bytes(data)
    for nlp in (loaded, other):
        again = nlp(doc_of(nlp, SENTENCES[0]))
        numpy.testing.assert_array_equal(again._.elmo, doc._.elmo)


def test_a_model_of_many_langs_too(tmp_path):
    write_many_langs(tmp_path / "xx.model")
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", config={"options_file": str(tmp_path / "xx.model")})
    doc = nlp(doc_of(nlp, SENTENCES[2]))
    expected = ElmoEmbedder(tmp_path / "xx.model").embed_sentence(SENTENCES[2])
    numpy.testing.assert_allclose(doc._.elmo, expected, atol=1e-6)
    nlp.to_disk(tmp_path / "saved")
    (tmp_path / "xx.model").rename(tmp_path / "gone")
    again = spacy.load(tmp_path / "saved")(doc_of(nlp, SENTENCES[2]))
    numpy.testing.assert_array_equal(again._.elmo, doc._.elmo)


def test_saved_where_a_model_of_many_langs_was(pipeline, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    torch.save({"a": torch.ones(2)}, folder / "weights.th")
    with pytest.raises(FileNotFoundError, match=r"options\.json"):
        ElmoComponent().from_disk(folder)
    component = pipeline.get_pipe("elmo")
    component.to_disk(folder)
    assert not (folder / "weights.th").exists()
    ElmoComponent().from_disk(folder)
    torch.save({"a": torch.ones(2)}, folder / "weights.th")
    with pytest.raises(ValueError, match=r"weights\.th: the key .* is missing, expected shape"):
        ElmoComponent().from_disk(folder)


def test_errors_say_what_was_expected(bilm_files, tmp_path, pipeline):
    nlp = spacy.blank("en")
    with pytest.raises(ValueError, match="elmo: state is 'carry', expected one of"):
        nlp.add_pipe("elmo", config={"state": "carry"})
    with pytest.raises(ValueError, match="elmo: max_tokens is 0, expected 1 or more"):
        nlp.add_pipe("elmo", config={"max_tokens": 0})
    wrong = nlp.add_pipe("elmo", config={"options_file": "orginal"})
    with pytest.raises(FileNotFoundError, match="there is no file orginal, and the names are"):
        nlp.initialize()
    with pytest.raises(FileNotFoundError, match="there is no file orginal"):
        wrong(doc_of(nlp, ["a"]))
    pipeline.to_disk(tmp_path / "saved")
    weights = tmp_path / "saved" / "elmo" / "weights.hdf5"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"elmo/weights.hdf5 is not a whole HDF5 file"):
        spacy.load(tmp_path / "saved")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*elmo/weights.hdf5"):
        spacy.load(tmp_path / "saved")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment in which spaCy finds this checkout's entry points."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def run(environment, folder, *arguments):
    child = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr + child.stdout
    return child.stdout


@pytest.mark.slow  # two imports of spaCy and torch
def test_no_import_is_needed(installed, tmp_path):
    code = (
        "import spacy, sys\n"
        "nlp = spacy.blank('en')\n"
        "nlp.add_pipe('elmo')\n"
        "print(nlp('Anna went home .')._.elmo.shape)\n"
        "print(spacy.registry.architectures.get('elmo_plugin.ElmoMix.v1').__name__)\n"
    )
    assert run(installed, tmp_path, "-c", code).split("\n")[:2] == ["(3, 4, 512)", "elmo_mix"]


@pytest.mark.slow
def test_the_example_config_trains_and_the_pipeline_predicts_elsewhere(installed, tmp_path):
    from experiments.spacy_ner import __main__ as results

    for split in ("train", "dev"):
        results.convert(ROOT / "examples" / "ner" / f"{split}.txt", tmp_path / f"{split}.spacy")
    settings = {"paths.train": "train.spacy", "paths.dev": "dev.spacy"}
    settings |= {"training.max_steps": 60, "training.eval_frequency": 30}
    config = str(ROOT / "examples" / "spacy" / "ner_elmo.cfg")
    arguments = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    run(installed, tmp_path, "-m", "spacy", "train", config, "--output", "out", *arguments)
    dev = str(tmp_path / "dev.spacy")
    once = run(installed, tmp_path, "-c", results.PREDICT, "out/model-last", dev)
    (tmp_path / "far").mkdir()
    (tmp_path / "out" / "model-last").rename(tmp_path / "far" / "moved")
    assert run(installed, tmp_path / "far", "-c", results.PREDICT, "moved", dev) == once
    assert "PER" in once
