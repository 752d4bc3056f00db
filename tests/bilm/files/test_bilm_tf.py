"""bilm-tf's checkpoints, written by TensorFlow, to the released format."""

import json
import re
import shutil
import sys
from pathlib import Path

import h5py
import numpy
import pytest
import torch

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.files.adagrad_state import read_accumulators
from elmo_plugin.bilm.files.bilm_tf import BilmTfCheckpoint
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.options import read_options
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax, load_softmax
from tests.bilm.files.bilm_tf_run import tensorflow_stand_in
from tests.bilm.files.bilm_tf_run.write_checkpoint import WORDS, shapes
from tests.hdf5 import arrays

FIXTURE = Path(__file__).parent / "bilm_tf_run" / "checkpoint"
NAME = "model.ckpt-2"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(FIXTURE, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def converted(tmp_path_factory, tensorflow):
    folder = tmp_path_factory.mktemp("converted")
    vocabulary = str(FIXTURE / "vocabulary.txt")
    main(["convert-checkpoint", str(FIXTURE), str(folder), "--vocabulary", vocabulary])
    return folder


def held():
    with numpy.load(FIXTURE / "values.npz") as file:
        return dict(file)


def released_name(name):
    """What bilm-tf's `dump_weights` calls a variable, by hand."""
    name = name.removeprefix("lm/").replace("/rnn/multi_rnn_cell/cell_", "/RNN/MultiRNNCell/Cell")
    name = name.replace("/lstm_cell/", "/LSTMCell/").replace("projection/kernel", "W_P_0")
    return name.replace("/kernel", "/W_0").replace("/bias", "/B")


def test_names_and_values_are_exact(converted):
    values = held()
    expected = {released_name(name): values[name] for name in shapes()}
    softmax = {key: expected.pop(key) for key in ("softmax/W", "softmax/b")}
    accumulators = {released_name(name): values[f"{name}/Adagrad"] for name in shapes()}
    for file, wanted in (
        ("weights.hdf5", expected),
        ("softmax.hdf5", softmax),
        ("adagrad.hdf5", accumulators),
    ):
        found = arrays(converted / file)
        assert found.keys() == wanted.keys()
        for key, array in wanted.items():
            assert found[key].dtype == array.dtype
            assert found[key].tobytes() == array.tobytes()


def test_converted_files_load_like_an_export(converted, tmp_path):
    bilm = load_bilm(converted / "options.json", converted / "weights.hdf5")
    save_weights(bilm, tmp_path / "again.hdf5")
    once, again = arrays(converted / "weights.hdf5"), arrays(tmp_path / "again.hdf5")
    for key, array in once.items():
        numpy.testing.assert_allclose(again[key], array, rtol=0, atol=1e-6)
    softmax = WordSoftmax(len(WORDS), 3)
    load_softmax(softmax, converted / "softmax.hdf5")
    assert torch.equal(softmax.bias[:, 0], torch.from_numpy(held()["lm/softmax/b"]))
    assert (converted / "vocabulary.txt").read_text().split() == WORDS
    card = json.loads((converted / "card.json").read_text())
    assert card["steps"] == 2
    assert card["training_options"]["n_tokens_vocab"] == len(WORDS)


def test_accumulators_have_the_shapes_of_parameters(converted):
    """Each is where the number is that it belongs to, without its sign and forget bias."""
    values, options = held(), read_options(converted / "options.json")
    found = read_accumulators(options, converted / "adagrad.hdf5")
    bilm = load_bilm(converted / "options.json", converted / "weights.hdf5")
    assert {n: v.shape for n, v in found.items() if n.startswith("bilm.")} == {
        f"bilm.{n}": p.shape for n, p in bilm.named_parameters()
    }
    char = found["bilm._token_embedder._char_embedding_weights"]
    assert torch.equal(char[0], torch.ones(4))
    assert numpy.array_equal(char[1:], values["lm/char_embed/Adagrad"])
    bias = values["lm/RNN_1/rnn/multi_rnn_cell/cell_1/lstm_cell/bias/Adagrad"].reshape(4, 5)
    ours = found["bilm._elmo_lstm.backward_layer_1.state_linearity.bias"]
    assert numpy.array_equal(ours.reshape(4, 5), bias[[0, 2, 1, 3]])
    carry = values["lm/CNN_high_0/W_carry/Adagrad"]
    highway = found["bilm._token_embedder._highways._layers.0.weight"]
    assert numpy.array_equal(highway[7:], carry.T)
    assert torch.equal(
        found["softmax.bias"][:, 0], torch.from_numpy(values["lm/softmax/b/Adagrad"])
    )


@pytest.mark.parametrize(
    ("name", "old"), [("kernel", "kernel"), ("kernel", "weights"), ("bias", "biases")]
)
def test_names_of_a_single_layer_and_of_tensorflow_1_0(
    folder, tmp_path, tensorflow, monkeypatch, name, old
):
    """bilm-tf puts no `multi_rnn_cell` around a single layer."""
    options = json.loads((folder / "options.json").read_text())
    options["lstm"]["n_layers"] = 1
    (folder / "options.json").write_text(json.dumps(options))
    values = {}
    for variable, value in held().items():
        short = variable.replace("multi_rnn_cell/cell_0/", "")
        values[re.sub(rf"/{name}(?=/Adagrad|$)", f"/{old}", short)] = value
    reader = tensorflow_stand_in.Reader(folder / NAME)
    reader.values = values
    monkeypatch.setattr(tensorflow.train, "load_checkpoint", lambda prefix: reader)
    BilmTfCheckpoint(folder).write(tmp_path / "out")
    kernel = arrays(tmp_path / "out" / "weights.hdf5")["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"]
    expected = held()["lm/RNN_1/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel"]
    assert numpy.array_equal(kernel, expected)


@pytest.fixture
def fails(error_line):
    def fails(arguments, message):
        assert message in error_line("convert-checkpoint", *arguments)

    return fails


def test_damaged_checkpoint_writes_nothing(folder, tmp_path, fails, tensorflow):
    data = folder / f"{NAME}.data-00000-of-00001"
    whole = data.read_bytes()
    data.write_bytes(whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:])
    fails([folder, tmp_path / "out"], "is not a whole TensorFlow checkpoint: TensorBundle")
    assert list((tmp_path / "out").iterdir()) == []
    data.unlink()
    fails([folder, tmp_path / "out"], "No such file or directory")


def test_error_without_tensorflow_says_how_to_install_it(folder, tmp_path, fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    fails([folder, tmp_path / "out"], "pip install 'elmo_plugin[tensorflow]'")
    assert not (tmp_path / "out").exists()


def test_errors_say_what_was_found_and_expected(folder, tmp_path, fails, tensorflow):
    out = tmp_path / "out"
    fails([tmp_path / "none", out], "there is no directory")
    fails([folder, out, "--checkpoint", "model.ckpt-9"], f"-9.index; {folder} has {NAME}")
    (tmp_path / "words").write_text("<S>\n</S>\n<UNK>\n")
    arguments = [folder, out, "--vocabulary", tmp_path / "words"]
    fails(arguments, f"words has 3 words, expected {len(WORDS)}: those of the softmax")
    options = json.loads((folder / "options.json").read_text())
    for change, message in (
        ({"lstm": {**options["lstm"], "dim": 6}}, "has shape (6, 20), the options require (6, 24)"),
        ({"lstm": {**options["lstm"], "n_layers": 3}}, "has no variable lm/RNN_0/rnn/multi_rnn"),
        ({"bidirectional": False}, "bidirectional is not true"),
        ({"char_cnn": None}, "has no key char_cnn: it is of a model that reads words"),
        ({"lstm": None}, "has no key lstm, expected bilm-tf's options"),
    ):
        changed = {key: value for key, value in {**options, **change}.items() if value is not None}
        (folder / "options.json").write_text(json.dumps(changed))
        fails([folder, out], message)
    (folder / "options.json").write_text("{")
    fails([folder, out], "is not a JSON file")
    (folder / "options.json").unlink()
    fails([folder, out], "which bilm-tf writes beside its checkpoints")
    assert not out.exists()


def test_output_is_replaced_only_with_force(folder, tmp_path, capsys, fails, tensorflow):
    out = tmp_path / "out"
    main(["convert-checkpoint", str(folder), str(out)])
    assert "vocabulary.txt" not in capsys.readouterr().out
    fails([folder, out], "options.json exists, expected a new file; --force replaces it")
    main(["convert-checkpoint", str(folder), str(out), "--force"])
    options = (folder / "options.json").read_bytes()
    fails([folder, folder, "--force"], "is the checkpoint's folder")
    assert (folder / "options.json").read_bytes() == options


def test_every_output_is_protected_without_force(folder, tmp_path, fails, tensorflow):
    for name in ("card.json", "softmax.hdf5", "vocabulary.txt"):
        out = tmp_path / name
        out.mkdir()
        (out / name).write_text("mine")
        fails([folder, out], f"{name} exists, expected a new file")
        assert [path.name for path in out.iterdir()] == [name]
        assert (out / name).read_text() == "mine"


def test_force_replaces_no_input_and_leaves_no_file_of_another_bilm(
    folder, tmp_path, fails, tensorflow
):
    out = tmp_path / "out"
    out.mkdir()
    shutil.copy(folder / "vocabulary.txt", out / "vocabulary.txt")
    arguments = [folder, out, "--force"]
    fails(
        [*arguments, "--vocabulary", out / "vocabulary.txt"],
        "vocabulary.txt is an input too, expected another file to write to",
    )
    fails(arguments, "vocabulary.txt belongs to another biLM")
    assert [path.name for path in out.iterdir()] == ["vocabulary.txt"]


def test_accumulators_of_another_bilm_or_damaged_are_refused(converted, tmp_path):
    from dataclasses import replace

    options = read_options(converted / "options.json")
    with pytest.raises(ValueError, match=r"adagrad.hdf5: .* has shape .*, the options require"):
        read_accumulators(replace(options, cell_size=6), converted / "adagrad.hdf5")
    damaged = tmp_path / "adagrad.hdf5"
    shutil.copy(converted / "adagrad.hdf5", damaged)
    with h5py.File(damaged, "r+") as file:
        file["softmax/b"][1] += 1
    with pytest.raises(ValueError, match="is damaged: its numbers have the checksum"):
        read_accumulators(options, damaged)
