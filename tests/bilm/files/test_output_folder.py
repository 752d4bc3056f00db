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


@pytest.mark.parametrize("name", ["notes.txt", "checkpoint_best.th", ".own.1.part"])
def test_foreign_file_is_refused(run, name):
    (run / name).write_text("mine")
    with pytest.raises(
        ValueError, match=rf"run holds {name}, which an earlier.*nothing was removed"
    ):
        found(run)


@pytest.mark.parametrize("name", ["data", "weights.hdf5"])
def test_folder_is_refused_although_it_is_empty(run, name):
    (run / "weights.hdf5").unlink()
    (run / name).mkdir()
    with pytest.raises(ValueError, match=r"which an earlier run did not make"):
        found(run)


def test_link_to_a_folder_is_foreign_and_not_followed(run):
    (run.parent / "data").mkdir()
    (run / "data").symlink_to(run.parent / "data")
    with pytest.raises(ValueError, match=r"run holds data, which an earlier run did not"):
        found(run)


def test_files_without_the_marker_are_no_run(run):
    (run / "config.json").unlink()
    with pytest.raises(ValueError, match=r"holds checkpoint_e0\.th but no config\.json"):
        found(run)


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


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match="run is a file, expected a folder"):
        found(tmp_path / "run")


def test_removal_can_be_repeated_after_an_interruption(run):
    paths = files_of_earlier_run(run, WRITTEN, "config.json")
    paths[0].unlink()
    remove_files(paths)
    assert list(run.iterdir()) == []
