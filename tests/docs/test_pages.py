"""Every command and snippet of README.md and `docs/` runs, and prints what its page says."""

import json
import re

import _jsonnet
import pytest

from tests.docs.page import ROOT, blocks, run

# Pages whose blocks train models or start processes.
SLOW = [
    "docs/embed_corpus.md",
    "README.md",
    "docs/how_to.md",
    "docs/interop/scoring.md",
    "docs/own_ner.md",
    "docs/text_classifier.md",
]
# Pages that show files or programs of others; tests/interop and tests/bilm/manylangs run those.
ELSEWHERE = ["docs/migrating.md"]
LIBRARIES = "docs/interop/libraries.md"
HUGGING_FACE = "docs/hugging_face.md"
OWN_TEXT = "docs/own_text.md"
PAGES = [
    str(path.relative_to(ROOT))
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    if any(block.runs for block in blocks(path.relative_to(ROOT)))
    and str(path.relative_to(ROOT)) not in (*ELSEWHERE, LIBRARIES, HUGGING_FACE, OWN_TEXT)
]
# Enough to see the commands work: the page's own number of epochs takes minutes.
FEW = '"trainer.num_epochs": 1, "dataset_reader.max_instances": 80'
SHORTER = [
    ('-o "{$DATA}"', '-o "{$DATA, ' + FEW.replace('"', '\\"') + '}"'),
    ("-s out/tagger", f"-s out/tagger -o '{{{FEW}}}'"),
    # A model that is asked what it predicts: after 3 of 10 epochs it is right.
    ("-s out/ner_elmo", "-s out/ner_elmo -o '{\"trainer.num_epochs\": 4}'"),
]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in SLOW])
def test_the_page_runs(page, tmp_path):
    run(page, tmp_path)


@pytest.mark.libraries
def test_the_page_of_other_libraries_runs(tmp_path):
    pytest.importorskip("sentence_transformers", reason="run by make libraries")
    pytest.importorskip("onnxscript", reason="run by make libraries")
    run(LIBRARIES, tmp_path)


@pytest.mark.libraries
def test_the_page_of_hugging_face_trains_a_tagger(tmp_path, monkeypatch):
    """As good as `ner_elmo` on the sample, whose F1 is 90.5, within three points."""
    for name in ("transformers", "datasets", "accelerate", "seqeval", "peft"):
        pytest.importorskip(name, reason="run by make libraries")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run(HUGGING_FACE, tmp_path)
    scores = json.loads((tmp_path / "out" / "hf" / "test_results.json").read_text())
    assert scores["eval_f1"] > 0.875


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_the_slow_page_runs(page, tmp_path):
    if page == "docs/embed_corpus.md":
        pytest.importorskip("pyarrow")
    run(page, tmp_path, SHORTER)
    if page == "docs/how_to.md":
        assert (tmp_path / "out" / "layer_weights.svg").read_text().startswith("<?xml")
        shown = (tmp_path / "out" / "entities.html").read_text()
        assert shown.count("PER") >= 1, "the tagger of the page predicts nothing"


@pytest.mark.slow
def test_the_page_leads_from_prose_to_a_classifier(tmp_path):
    """One epoch each, on whole sentences, is enough to see that the chain holds."""
    own = tmp_path / "own"
    (own / "prose").mkdir(parents=True)
    for name, source in (("train_1", "train"), ("heldout", "dev")):
        trees = (ROOT / "examples" / "sst" / f"{source}.txt").read_text("utf-8").splitlines()
        sentences = (" ".join(re.findall(r"[^\s()]+(?=\))", tree)) for tree in trees)
        text = " ".join(f"{sentence[:-2].capitalize()}." for sentence in sentences)
        (own / "prose" / f"{name}.txt").write_text(text, "utf-8")
    epoch = '"trainer.num_epochs": 1, '
    shorter = [
        ("-o '{", "-o '{" + epoch),
        (
            "-s own/sentiment",
            f"-s own/sentiment -o '{{{epoch}\"dataset_reader.use_subtrees\": false}}'",
        ),
        ("allennlp evaluate", "rm -r own/bilm\nallennlp evaluate"),  # the archive stands alone
    ]
    run(OWN_TEXT, tmp_path, shorter)
    assert len((own / "train.txt").read_text("utf-8").splitlines()) == 400
    metrics = json.loads((own / "metrics.json").read_text())
    assert 0 < metrics["accuracy"] <= metrics["accuracy3"] <= 1
    prediction = json.loads((own / "labels.jsonl").read_text())
    probabilities = prediction["class_probabilities"]
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)
    labels = (own / "sentiment" / "vocabulary" / "labels.txt").read_text().split()
    assert labels[probabilities.index(max(probabilities))] == prediction["label"]


def test_the_regularizer_of_how_to_is_that_of_the_config():
    (code,) = (block.code for block in blocks("docs/how_to.md") if block.language == "jsonnet")
    page = json.loads(_jsonnet.evaluate_snippet("page", "{" + code + "}"))["regularizer"]
    config = json.loads(_jsonnet.evaluate_file(str(ROOT / "training_config" / "ner_elmo.jsonnet")))
    assert page["regexes"][0][0] == config["model"]["regularizer"]["regexes"][0][0]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 900


def linked_from(page):
    """The files that a page links to."""
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    return {(page.parent / one).resolve(): one for one in targets if "://" not in one}


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for path, target in linked_from(page).items():
            assert path.exists(), f"{page} links to {target}"


def test_every_page_is_two_links_from_the_readme():
    index = ROOT / "docs" / "index.md"
    assert index in linked_from(ROOT / "README.md")
    assert {*(ROOT / "docs").rglob("*.md")} - {index} - linked_from(index).keys() == set()


def test_the_picture_shows_the_runs():
    from experiments.table1.picture import draw

    table = ROOT / "results" / "table1"
    drawn = draw(table / "runs.csv", table / "present" / "runs.csv")
    assert drawn == (ROOT / "docs" / "assets" / "table1.svg").read_text("utf-8")


def test_the_readme_table_agrees_with_the_picture():
    rows = [line.split("|")[1:-1] for line in (ROOT / "README.md").read_text("utf-8").splitlines()]
    table = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows if cells}
    picture = (ROOT / "docs" / "assets" / "table1.svg").read_text("utf-8")
    shown = re.findall(r"(?:ELMo: |; )([^;<]+), [^,;]+? (\S+) and ([\d.]+)", picture)
    titles = next(cells for cells in rows if "SQuAD" in "".join(cells))[1:]
    assert [title for title, _, _ in shown] == [title.strip() for title in titles]
    assert [f"{low} → {high}" for _, low, high in shown] == table["here, + ELMo"]
