from pathlib import Path

import pytest

from elmo_plugin.bilm.files.folder_lock import locked_folder
from elmo_plugin.bilm.files.output_folder import files_of_earlier_run, remove_files

WRITTEN = ("weights.hdf5", "checkpoint_e[0-9]*.th")
RUN = ["checkpoint_e0.th", "weights.hdf5", "config.json"]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in RUN:
        (folder / name).write_text("x")
    return folder


def found(folder, inputs=()):
    paths = files_of_earlier_run(folder, WRITTEN, "config.json", inputs)
    return [path.relative_to(folder).as_posix() for path in paths]


def test_files_of_a_run_are_listed_and_the_marker_is_last(run):
    assert found(run) == RUN
    assert found(run.with_name("none")) == []


def test_remove_files_leaves_the_folder_and_its_lock(run):
    with locked_folder(run):
        remove_files(files_of_earlier_run(run, WRITTEN, "config.json"))
        assert [path.name for path in run.iterdir()] == ["lock"]


def test_temporary_files_of_a_run_belong_to_it(run):
    name = ".weights.hdf5.0123456789ab.1-0.part"
    (run / name).write_text("x")
    assert name in found(run)


FOREIGN = "which an earlier run did not make; .*nothing was removed"
# Name in the folder, how it is made, and the error.
REFUSED = [
    ("notes.txt", Path.touch, f"holds notes.txt, {FOREIGN}"),
    ("checkpoint_best.th", Path.touch, f"holds checkpoint_best.th, {FOREIGN}"),
    (".own.1.part", Path.touch, f"holds .own.1.part, {FOREIGN}"),
    ("data", Path.mkdir, f"holds data, {FOREIGN}"),
    ("weights.hdf5", Path.mkdir, f"holds weights.hdf5, {FOREIGN}"),
    ("data", lambda path: path.symlink_to(path.parents[1]), f"holds data, {FOREIGN}"),
    ("config.json", lambda path: None, r"holds checkpoint_e0\.th but no config\.json"),
]


@pytest.mark.parametrize(("name", "make", "message"), REFUSED)
def test_what_is_not_of_a_run_is_refused(run, name, make, message):
    (run / name).unlink(missing_ok=True)
    make(run / name)
    with pytest.raises(ValueError, match=message):
        found(run)


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match="run is a file, expected a folder"):
        found(tmp_path / "run")


def test_run_that_was_killed_while_writing_the_marker_is_a_run(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / ".config.json.0123456789ab.1-0.part").touch()
    assert found(tmp_path) == [".config.json.0123456789ab.1-0.part"]


@pytest.mark.parametrize("how", ["weights.hdf5", ".", "relative", "link"])
def test_folder_that_holds_an_input_is_refused(run, monkeypatch, how):
    source = run / how
    if how == "relative":
        monkeypatch.chdir(run)
        source = "weights.hdf5"
    elif how == "link":
        source = run.parent / "link"
        source.symlink_to(run / "weights.hdf5")
    with pytest.raises(ValueError, match=r"which this command reads; expected an output folder"):
        found(run, [run.parent / "elsewhere", source])


def test_removal_can_be_repeated_after_an_interruption(run):
    paths = files_of_earlier_run(run, WRITTEN, "config.json")
    paths[0].unlink()
    remove_files(paths)
    assert list(run.iterdir()) == []
