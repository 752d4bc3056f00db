"""The command `embed-corpus`: arguments, messages, errors of one line."""

import pytest

pytest.importorskip("pyarrow", reason="Parquet is written by pyarrow, which is not installed")

from elmo_plugin import read_corpus
from elmo_plugin.__main__ import main
from elmo_plugin.bilm.corpus import embed
from tests.bilm.extraction.inline_workers import InlineWorker, InlineWorkers
from tests.tiny_bilm import write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "LocalWorkers", InlineWorkers)
    write(tmp_path)
    (tmp_path / "a.txt").write_text("The cat sat .\n\nYes\n")
    (tmp_path / "b.txt").write_text("Dogs bark at the moon\n")
    return tmp_path


BILM = ["--options-file", "options.json", "--weight-file", "weights.hdf5"]


def test_it_makes_what_read_corpus_reads_and_says_so(folder, capsys, error_line):
    main(["embed-corpus", "?.txt", "out", *BILM, "--layers", "top", "--workers", "1"])
    said = capsys.readouterr().err
    assert said.endswith("4 lines, 10 tokens in 1 part in out\n")
    assert "tokens/s" in said
    assert [(line.file, line.line, line.array.shape) for line in read_corpus("out")] == [
        ("a.txt", 1, (4, 12)),
        ("a.txt", 2, (0, 12)),
        ("a.txt", 3, (1, 12)),
        ("b.txt", 1, (5, 12)),
    ]
    main(["embed-corpus", "a.txt", "b.txt", "out", *BILM, "--layers", "top"])
    assert "4 lines, 10 tokens in 1 part in out" in capsys.readouterr().err
    error = error_line("embed-corpus", "a.txt", "b.txt", "out", *BILM, "--layers", "all")
    assert "layers was 'top' when this run began" in error


def test_progress_is_in_lines_for_logs(folder, capsys):
    main(["embed-corpus", "?.txt", "out", *BILM, "--file-friendly-logging"])
    said = capsys.readouterr().err
    assert "\r" not in said
    assert "1 of 1 shards, workers: 1" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["*.text", "out"], "there is no file *.text, expected text files, or patterns in quotes"),
        (["a.txt", "out", "--threads", "0"], "threads is 0, expected 1 or more"),
        (["a.txt", "out", "--weight-file", "gone"], "'gone' was given without options_file"),
        (["bad.txt", "out"], "bad.txt, line 2: the byte 0xe9 is not UTF-8; expected UTF-8 text"),
        (["a.txt", "a.txt"], "a.txt is a file, expected a folder"),
    ],
)
def test_errors_are_one_line(folder, error_line, arguments, message):
    (folder / "bad.txt").write_bytes(b"fine\nol\xe9\n")
    assert message in error_line("embed-corpus", *arguments)


def test_a_missing_package_is_named(folder, error_line, monkeypatch):
    def missing():
        raise ModuleNotFoundError("ray is not installed", name="ray")

    monkeypatch.setattr(embed, "ray_module", missing)
    error = error_line("embed-corpus", "a.txt", "out", "--engine", "ray")
    assert error == "error: ray is not installed; pip install 'elmo_plugin[ray]'"


def test_runs_that_share_the_shards(folder, capsys):
    command = ["embed-corpus", "?.txt", "out", *BILM, "--shard-tokens", "3", "--resume", "--shard"]
    for shard, said in (("1/2", "shard 1/2 is done; the other"), ("2/2", "4 lines, 10 tokens in")):
        main([*command, shard])
        assert capsys.readouterr().err.splitlines()[-1].startswith(said)
    assert len(list(read_corpus("out"))) == 4


def test_ctrl_c_says_how_it_goes_on(folder, capsys, monkeypatch):
    def interrupted(self, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(InlineWorker, "compute", interrupted)
    with pytest.raises(SystemExit) as exit_:
        main(["embed-corpus", "a.txt", "out", *BILM])
    assert exit_.value.code == 130
    assert capsys.readouterr().err.endswith("interrupted; to resume, run the same command\n")
