import re
import sys
from pathlib import Path

import h5py
import pytest

from elmo_plugin import ElmoEmbedder
from elmo_plugin.__main__ import main
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.pretraining.report import Report
from elmo_plugin.bilm.use.token_vectors import write_token_vectors

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", ["missing", "closed", "full"])
def test_without_stderr_notes_and_bars_are_left_out(kind, tmp_path, monkeypatch, capfd):
    stream = Path("/dev/full").open("w", buffering=1) if kind != "missing" else None  # noqa: SIM115
    if kind == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    embedder = ElmoEmbedder()
    assert len(list(embedder.embed_sentences([["a"], ["b"]], progress=True))) == 2
    write_token_vectors(load_bilm("embedded"), ["a"], tmp_path / "vectors.txt")
    with Report(tmp_path, 1, 1, shows=True, tensorboard=False).epoch(0, 0, 1):
        pass
    assert capfd.readouterr().out == ""


def test_a_command_opens_the_streams_that_are_missing(monkeypatch, tmp_path):
    (tmp_path / "text").write_text("a b\n")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    main(["elmo", str(tmp_path / "text"), str(tmp_path / "out.hdf5"), "--all"])
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file["0"].shape[1] == 2


def test_all_messages_of_the_library_go_through_it():
    for path in (ROOT / "elmo_plugin").glob("bilm/**/*.py"):
        text = path.read_text()
        assert path.name == "stderr.py" or "sys.stderr" not in text, path
        for call in re.findall(r"\btqdm\(((?:[^()]|\([^()]*\))*)\)", text):
            assert "file=stderr()" in call or call == "disable=True", (path, call)
