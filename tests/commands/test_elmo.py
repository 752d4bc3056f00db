"""The command `elmo`: 0.9's arguments, found by AllenNLP both ways, and run without it."""

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy
import pytest

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.extraction.vectors import LAYERS
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from elmo_plugin.commands import COMMANDS
from tests.bilm.extraction.test_extract import datasets, names, text
from tests.commands.test_registry import ALLENNLP_HIDDEN
from tests.fresh_process import allennlp, run
from tests.other_processes import wait_until
from tests.tiny_bilm import write

SENTENCES = ["The cat sat .", "Dogs bark at the moon", "Yes"]


@pytest.fixture(scope="module")
def bilm(files):
    return ["--options-file", files.options, "--weight-file", files.weights]


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES) + "\n")
    return str(tmp_path / "in.txt")


@pytest.mark.slow
@pytest.mark.parametrize("where", [".allennlp_plugins", "home/.allennlp/plugins"])
def test_allennlp_finds_it(tmp_path, inputs, bilm, where):
    (tmp_path / "home").mkdir()
    plugins = tmp_path / where
    plugins.parent.mkdir(exist_ok=True)
    plugins.write_text("elmo_plugin.plugin\n")
    arguments = [inputs, "out.hdf5", "--all", *bilm, "--include-package", "elmo_plugin.bilm"]
    allennlp("elmo", *arguments, folder=tmp_path, HOME=str(tmp_path / "home"))
    main(["elmo", inputs, str(tmp_path / "own.hdf5"), "--all", *bilm])
    assert datasets(tmp_path / "out.hdf5") == datasets(tmp_path / "own.hdf5")


def test_it_runs_where_allennlp_is_absent(tmp_path, inputs, bilm):
    arguments = ["elmo", inputs, str(tmp_path / "out"), "--top", *bilm]
    child = run(f"{ALLENNLP_HIDDEN}main({arguments!r})")
    assert "3 sentences in" in child.stderr
    assert "sentences/s" in child.stderr
    assert "biLM: " in child.stderr
    with h5py.File(tmp_path / "out") as file:
        assert file.get("1").shape == (5, 12)


def test_every_argument_of_0_9_is_taken_and_the_how_to_s_lines_run(tmp_path, inputs, bilm, capsys):
    output = str(tmp_path / "elmo_layers.hdf5")
    old = ["--all", "--vocab-path", "v.txt", "--batch-size", "2", "--cuda-device", "-1"]
    old += ["--file-friendly-logging", "--include-sentence-indices"]
    main(["elmo", inputs, output, *old, *bilm])
    h5py_file = h5py.File(output, "r")
    embedding = h5py_file.get("0")
    assert embedding.shape == (3, 4, 12)
    assert len(embedding[0]) == len(SENTENCES[0].split())
    assert json.loads(h5py_file["sentence_to_index"][0])["Yes"] == "2"
    h5py_file.close()
    assert "\r" not in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--forget-sentences", "--use-sentence-keys"])
def test_sentences_may_be_left_out_or_be_the_keys(tmp_path, inputs, bilm, flag):
    main(["elmo", inputs, str(tmp_path / "out"), "--average", flag, *bilm])
    expected = ["0", "1", "2"] if flag == "--forget-sentences" else SENTENCES
    assert list(datasets(tmp_path / "out")) == expected


def test_standard_input_is_read(tmp_path, bilm):
    child = subprocess.run(
        [sys.executable, "-m", "elmo_plugin", "elmo", "-", str(tmp_path / "out"), "--all", *bilm],
        input="naïve\n\nYes\n".encode(),
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
    )
    assert child.returncode == 0, child.stderr
    with h5py.File(tmp_path / "out") as file:
        assert [file[str(index)].shape[1] for index in range(3)] == [1, 0, 1]
        assert list(json.loads(file["sentence_to_index"][0])) == ["naïve", "", "Yes"]


def test_the_new_options_reach_the_file(tmp_path, inputs, bilm):
    new = ["--dtype", "float16", "--compress", "--layout", "ragged", "--max-tokens", "9"]
    main(["elmo", inputs, str(tmp_path / "out"), "--all", "--state", "carry", *new, *bilm])
    with h5py.File(tmp_path / "out") as file:
        assert file["embeddings"].dtype == numpy.float16
        assert file["embeddings"].compression == "gzip"
        assert file["offsets"][...].tolist() == [0, 4, 9, 10]
        embedder = ElmoEmbedder(bilm[1], bilm[3], state="carry")
        expected = embedder.embed_batch([sentence.split() for sentence in SENTENCES])
        found = file["embeddings"][:, 4:9]
        numpy.testing.assert_allclose(found, expected[1], atol=2e-3)


def test_runs_that_share_the_shards(tmp_path, inputs, bilm, capsys):
    for shard, said in (("2/2", "shard 2/2 is done; the other"), ("1/2", "3 sentences in")):
        main(["elmo", inputs, str(tmp_path / "out"), "--top", "--shard", shard, *bilm])
        assert capsys.readouterr().err.splitlines()[-1].startswith(said)
    assert names(tmp_path) == ["in.txt", "out"]


def test_gzip_input_and_a_single_sentence(tmp_path, bilm, capsys):
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"The cat sat .\n"))
    main(["elmo", str(tmp_path / "in.gz"), str(tmp_path / "out"), "--top", *bilm])
    assert capsys.readouterr().err.endswith(f"1 sentence in {tmp_path / 'out'}\n")


@pytest.mark.parametrize(
    "command", ["elmo IN", "token-vectors IN", "neighbours IN word word --page"]
)
def test_force_replaces_no_file_of_the_bilm(tmp_path, inputs, error_line, command):
    files = write(tmp_path)
    before = Path(files.weights).read_bytes()
    arguments = [*command.replace("IN", str(inputs)).split(), files.weights]
    arguments += ["--options-file", files.options, "--weight-file", files.weights, "--force"]
    error = error_line(*arguments)
    assert "weights.hdf5 is an input too" in error
    assert Path(files.weights).read_bytes() == before


def test_the_default_is_primed_and_embedded(tmp_path, inputs, capsys):
    main(["elmo", inputs, str(tmp_path / "out"), "--all"])
    assert "biLM: embedded\n" in capsys.readouterr().err
    with h5py.File(tmp_path / "out") as file:
        assert json.loads(file.attrs["elmo_plugin"])["settings"]["state"] == "primed"
        expected = ElmoEmbedder().embed_sentence(SENTENCES[1].split())
        numpy.testing.assert_allclose(file["1"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{in}", "no/out", "--all"], "there is no folder no to write out to"),
        (["{in}", "out.parquet"], "out.parquet, expected an HDF5 file; embed-corpus writes"),
        (["{in}", "out", "--all", "--weight-file", "w"], "was given without options_file"),
        (["{in}", "out", "--all", "--options-file", "o"], "there is no file o"),
        (
            ["{in}", "out", "--all", "--layout", "ragged", "--use-sentence-keys"],
            "use_sentence_keys was given with the ragged layout",
        ),
        (["{in}", "out", "--all", "--state", "carry", "--workers", "2"], "state is 'carry', in"),
    ],
)
def test_errors_are_one_line(tmp_path, inputs, monkeypatch, error_line, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_line("elmo", *[one.replace("{in}", inputs) for one in arguments])
    assert names(tmp_path) == ["in.txt"]


@pytest.mark.parametrize("command", ["elmo", "embed-corpus"])
def test_layers_may_be_given_by_0_9_s_options_too(command, capsys):
    parser = argparse.ArgumentParser()
    COMMANDS[command].add_arguments(parser)
    layers = {"": "average"} | {f"--{one}": one for one in LAYERS}
    for option, expected in (layers | {f"--layers {one}": one for one in LAYERS}).items():
        assert parser.parse_args(["in", "out", *option.split()]).layers == expected
    with pytest.raises(SystemExit) as exit_:
        parser.parse_args(["in", "out", "--all", "--layers", "top"])
    assert exit_.value.code == 2
    assert "not allowed with argument --all" in capsys.readouterr().err


def test_notes_say_what_the_defaults_do_and_how_to_change_them(tmp_path, inputs, bilm, capsys):
    def notes(name, *arguments):
        main(["elmo", inputs, str(tmp_path / name), "--all", *arguments])
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if line.startswith("note: ")]

    blank = "note: blank lines, if any, are kept, as sentences of no tokens"
    assert notes("carry", "--state", "carry", *bilm) == [blank]
    state, last = notes("reset", "--state", "reset", *bilm)
    assert state.startswith("note: every line starts from the same state (--state reset), so")
    assert "; --state carry continues from batch to batch" in state
    assert last == blank
    source, state, last = notes("embedded")
    with h5py.File(tmp_path / "embedded") as file:
        width = file["0"].shape[-1]
    assert source.startswith(f"note: a vector has {width} numbers, from the embedded biLM; ")
    assert "--options-file original" in source
    assert "(--state primed)" in state
    assert last == blank


@pytest.mark.parametrize(("count", "said"), [(0, "has no GPU"), (2, "has GPUs 0 to 1")])
def test_a_gpu_that_is_not_there(tmp_path, inputs, bilm, error_line, monkeypatch, count, said):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    error = error_line("elmo", inputs, tmp_path / "o", "--all", "--cuda-device", "2", *bilm)
    said = f"--cuda-device is 2, expected less: this machine {said} that PyTorch can use; -1 is the"
    assert said in error


def test_bad_utf8_is_an_error_unless_replaced(tmp_path, bilm, error_line):
    (tmp_path / "in").write_bytes(b"fine\nol\xe9\n")
    arguments = ["elmo", str(tmp_path / "in"), str(tmp_path / "out"), "--all", *bilm]
    said = "in, line 2: the byte 0xe9 is not UTF-8; expected UTF-8 text, or --replace-bad-utf8"
    assert said in error_line(*arguments)
    assert not (tmp_path / "out").exists()
    main([*arguments, "--replace-bad-utf8", "--force"])
    with h5py.File(tmp_path / "out") as file:
        assert list(json.loads(file["sentence_to_index"][0])) == ["fine", "ol\ufffd"]


# It waits for the signal: a fast machine would end before.
WAITS_AFTER_A_PART = """
import sys, time
from elmo_plugin.__main__ import main
from elmo_plugin.bilm.extraction import parts
parts.SHARD_STEPS = 0
compute = parts.Parts.compute
def compute_and_wait(*arguments):
    compute(*arguments)
    time.sleep(600)
parts.Parts.compute = compute_and_wait
main(sys.argv[1:])
"""


def test_ctrl_c_says_how_to_go_on(tmp_path, bilm, monkeypatch):
    lines = text(600)
    (tmp_path / "in").write_text("\n".join(lines))
    (tmp_path / "out").write_text("precious")
    arguments = ["elmo", str(tmp_path / "in"), str(tmp_path / "out"), "--top", "--max-tokens", "50"]
    arguments += [*bilm, "--force"]
    child = subprocess.Popen(
        [sys.executable, "-c", WAITS_AFTER_A_PART, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in a shell's background, children would ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    part = tmp_path / "out.partial" / "part-000000"
    wait_until(lambda: part.exists() or child.poll() is not None)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate()
    assert child.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; to resume, run the same command with --resume"
    assert (tmp_path / "out").read_text() == "precious"
    monkeypatch.setattr("elmo_plugin.bilm.extraction.parts.SHARD_STEPS", 0)
    main([*arguments, "--resume"])
    with h5py.File(tmp_path / "out") as file:
        assert len(file) == len(lines) + 1
    assert names(tmp_path) == ["in", "out"]
