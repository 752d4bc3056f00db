"""ELMoForManyLangs' folders: what is read, and one error for whatever is wrong with one."""

import json
import pickle
import shutil
import zipfile

import pytest
import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.many_langs import RELEASED_SIZES, many_langs_options
from elmo_plugin.bilm.files.names import find_options, find_weights
from elmo_plugin.bilm.files.options import num_parameters, options_dict
from elmo_plugin.bilm.files.weights import load_weights, save_weights
from tests.cases import first_quick
from tests.many_langs_model import write_many_langs
from tests.tiny_bilm import OPTIONS, random_bilm, write


@pytest.fixture
def folder(tmp_path):
    return write_many_langs(tmp_path / "xx.model")


def test_options(folder):
    options = find_options(str(folder))
    assert options == many_langs_options(folder) == find_options(None, folder)
    assert (options.projection_dim, options.cell_size, options.num_layers) == (6, 10, 2)
    assert (options.cell_clip, options.projection_clip) == (0.6, 0.4)
    assert (options.num_characters, options.num_words, options.word_dim) == (12, 11, 5)
    assert options.use_skip_connections
    assert find_weights(folder, None) == folder
    bilm = load_bilm(folder)
    assert num_parameters(options) == sum(one.numel() for one in bilm.parameters())
    # By both arguments, and by inlined options.
    for arguments in ((folder, folder), (None, folder), (options_dict(options), folder)):
        other = load_bilm(*arguments)
        for one, another in zip(bilm.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, another)


@first_quick("path", ["C:\\elmo\\configs\\{}", "/users4/conll18st/{}", "{}"])
def test_sizes_that_came_with_the_program(folder, path):
    (folder / "sizes.json").unlink()
    for name in RELEASED_SIZES:
        config = {"config_path": path.format(name)}
        (folder / "config.json").write_text(json.dumps(config))
        options = many_langs_options(folder)
        assert (options.projection_dim, options.cell_size, options.num_filters) == (512, 4096, 2048)
        assert (options.char_embedding_dim, options.word_dim, options.num_highways) == (50, 100, 2)
    with pytest.raises(ValueError, match=r"has shape \(34, 4\), the options require \(34, 50\)"):
        load_bilm(folder)


def spoil(path, change):
    """
    Remove a file for `None`, or write bytes or text. A dictionary has other values for dotted keys
    of JSON, or other tensors, with `...` for none. Anything else is stored in place of tensors.
    """
    if change is None:
        path.unlink()
    elif isinstance(change, (bytes, str)):
        path.write_bytes(change if isinstance(change, bytes) else change.encode())
    elif path.suffix == ".json":
        found = json.loads(path.read_text())
        for key, value in change.items():
            part, name = key.split(".")
            found[part][name] = value
        path.write_text(json.dumps(found))
    else:
        tensors = torch.load(path, weights_only=True)
        if isinstance(change, dict):
            kept = {**tensors, **change}
            change = {key: value for key, value in kept.items() if value is not ...}
        torch.save(change, path)


CONFIG, SIZES, TOKENS, LSTM = "config.json", "sizes.json", "token_embedder.pkl", "encoder.pkl"
BIAS = "projection.bias"
# File, its change, and what the error says.
ERRORS = [
    (CONFIG, None, "xx.model has no file config.json, expected a folder of"),
    ("char.dic", None, "has no file char.dic"),
    ("word.dic", None, "there is no file .*word.dic"),
    (TOKENS, None, "has no file token_embedder.pkl"),
    (LSTM, None, "has no file encoder.pkl"),
    (SIZES, None, "there is no file 'sizes.json' in the folder; expected"),
    (CONFIG, "{", "config.json is not a JSON file"),
    (CONFIG, "{}", "the key config_path is missing"),
    (CONFIG, '{"config_path": 3}', "config_path is 3, expected a value of type"),
    (CONFIG, '{"config_path": "config.json"}', "there is no file 'config.json'"),
    (CONFIG, '{"config_path": "../.."}', "there is no file '..' in the folder"),
    (SIZES, {"token_embedder.name": "lstm"}, "name is 'lstm', expected 'cnn'; an LSTM over"),
    (SIZES, {"encoder.name": "LSTM"}, "encoder.name is 'LSTM', expected 'elmo'; an LSTM without"),
    (SIZES, {"token_embedder.char_dim": 0}, "char_dim is 0, expected a width; a model of"),
    (SIZES, {"token_embedder.activation": "gelu"}, r"is 'gelu', expected one of \('relu', "),
    (SIZES, {"encoder.dim": 10**9}, "encoder.dim is 1000000000, expected a positive"),
    (SIZES, {"encoder.dim": 10**6, "encoder.projection_dim": 10**6}, "parameters, exp"),
    (SIZES, {"token_embedder.word_dim": 4}, r"word_emb_.* shape \(11, 5\), .* require \(11, 4\)"),
    (SIZES, {"token_embedder.word_dim": 0}, r"shape \(6, 17\), .* require \(6, 12\)"),
    (SIZES, {"encoder.n_layers": 1}, "the sizes in the config have no place for backward_layer_1."),
    (SIZES, {"encoder.n_layers": 3}, "key forward_layer_2.* is missing, expected shape"),
    ("char.dic", "a\tb\tc\n", r"char.dic, line 1 is 'a\\tb\\tc', exp"),
    ("word.dic", "a\t0\n\n", "word.dic, line 2 is '', expected a token"),
    ("char.dic", "a\t0\nb\t0\n", "line 2: the token 'b' or the id 0 is "),
    ("char.dic", "\u3000\t0\n\xa0\t1\n", "line 2: the token "),  # white space
    ("char.dic", "a\t0\nb\t2\n", "has 2 entries, but the id 2; 1 are miss"),
    ("char.dic", "", "char.dic"),
    ("char.dic", b"\xff\t0\n", "char.dic:1: not UTF-8"),
    ("word.dic", "a\t0\n", "xx.model: <oov> is missing among the words"),
    (TOKENS, {BIAS: ...}, f"{BIAS} is missing"),
    (TOKENS, {"char_lstm.bias": torch.zeros(1)}, "have no place for char_lstm.bias"),
    (TOKENS, {BIAS: torch.zeros(3)}, r"has shape \(3,\), the options require \(6,\)"),
    (TOKENS, {BIAS: torch.zeros(6).long()}, "has type torch.int64, expected floating point"),
    (TOKENS, {BIAS: "x"}, "bias is 'x'"),
    (TOKENS, {BIAS: torch.zeros(6, device="meta")}, "of the device meta, expected a plain one"),
    (TOKENS, {BIAS: torch.zeros(6).to_sparse()}, "sparse_coo tensor"),
    (TOKENS, {BIAS: torch.full((6,), torch.nan)}, "holds NaN or infinity"),
    (LSTM, [1], "encoder.pkl holds a list"),
    (LSTM, "PK not a ZIP", "encoder.pkl is"),
    (LSTM, "", "encoder.pkl is not a whole file of tensors"),
]


@pytest.mark.parametrize(("file", "change", "expected"), ERRORS)
def test_errors(folder, file, change, expected):
    spoil(folder / file, change)
    with pytest.raises((ValueError, FileNotFoundError), match=expected) as caught:
        load_bilm(folder)
    assert "\n" not in str(caught.value).strip() or "tensors" in str(caught.value)


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("old_container", [False, True])
def test_no_pickle_runs_code(folder, tmp_path, old_container):
    sign = tmp_path / "it ran"
    evil = {"projection.bias": Evil(sign)}
    torch.save(evil, folder / "encoder.pkl", _use_new_zipfile_serialization=not old_container)
    with pytest.raises(ValueError, match=r"encoder.pkl is damaged, or a pickle of more"):
        load_bilm(folder)
    (folder / "encoder.pkl").write_bytes(pickle.dumps(Evil(sign)))
    with pytest.raises(ValueError, match=r"encoder.pkl"):
        load_bilm(folder)
    assert not sign.exists()
    # A negative control: it would have.
    pickle.loads(pickle.dumps(Evil(sign))).close()
    assert sign.exists()


@pytest.mark.parametrize("old_container", [False, True])
def test_a_file_that_was_cut(tmp_path, old_container):
    folder = write_many_langs(tmp_path / "xx.model", old_container=old_container)
    whole = (folder / "encoder.pkl").read_bytes()
    for size in range(0, len(whole), len(whole) // 40):
        (folder / "encoder.pkl").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"encoder.pkl"):
            load_bilm(folder)
    (folder / "encoder.pkl").write_bytes(whole)
    load_bilm(folder)


def test_it_fits_no_weight_file_and_no_weight_file_fits_it(folder, tmp_path):
    files = write(tmp_path)
    bilm = load_bilm(folder)
    with pytest.raises(ValueError, match="fits no weight file, expected bilm-tf's kind"):
        save_weights(bilm, tmp_path / "new.hdf5")
    assert not (tmp_path / "new.hdf5").exists()
    with pytest.raises(ValueError, match="fits no weight file"):
        load_weights(bilm, files.weights)
    with pytest.raises(ValueError, match=r"weights.hdf5 was given for an ELMoForManyLangs model"):
        load_bilm(folder, files.weights)
    with pytest.raises(ValueError, match=r"xx.model is a folder of ELMoForManyLangs, expected a"):
        load_bilm(files.options, folder)


def test_options_of_an_archive(folder):
    options = options_dict(find_options(folder))
    assert json.loads(json.dumps(options)) == options
    assert options["many_langs"] == {"n_characters": 34, "n_words": 11, "word_dim": 5}
    shutil.rmtree(folder)
    bilm = load_bilm(options)
    assert bilm.options == find_options(options)
    with pytest.raises(ValueError, match=r"many_langs.n_words is -1, expected 0 or more"):
        find_options({**options, "many_langs": {**options["many_langs"], "n_words": -1}})
    assert "many_langs" not in options_dict(OPTIONS) == options_dict(random_bilm().options)


def test_flipped_bits_of_a_zipped_pickle_are_refused_or_change_nothing(folder):
    path = folder / "token_embedder.pkl"
    torch.save(torch.load(path), path)  # a ZIP, which has checksums
    assert zipfile.is_zipfile(path)
    expected = [one.clone() for one in load_bilm(folder).parameters()]
    content = path.read_bytes()
    refused = 0
    for position in range(7, len(content), len(content) // 60):
        path.write_bytes(
            content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]
        )
        try:
            found = list(load_bilm(folder).parameters())
        except ValueError:
            refused += 1
        else:
            assert all(map(torch.equal, found, expected))
    assert refused > 20
