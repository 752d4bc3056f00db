import json
import os

import pytest

from elmo_plugin.bilm.files.options import num_parameters, options_dict, parse_options, read_options
from elmo_plugin.bilm.model.options import ElmoOptions
from tests.tiny_bilm import OPTIONS, random_bilm


def released(**changes):
    """The content of an `options.json`; dotted keys change it, `...` takes a key out."""
    content = {
        "lstm": {
            "use_skip_connections": True,
            "projection_dim": 512,
            "cell_clip": 3,
            "proj_clip": 3,
            "dim": 4096,
            "n_layers": 2,
        },
        "char_cnn": {
            "activation": "relu",
            "filters": [[1, 32], [2, 64], [7, 1024]],
            "n_highway": 2,
            "embedding": {"dim": 16},
            "n_characters": 262,
            "max_characters_per_token": 50,
        },
    }
    for key, value in changes.items():
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            place = place[parent]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return content


def test_by_hand():
    options = parse_options(released())
    assert options == ElmoOptions(
        projection_dim=512,
        cell_size=4096,
        num_layers=2,
        char_embedding_dim=16,
        filters=((1, 32), (2, 64), (7, 1024)),
        num_highways=2,
        num_characters=50,
        activation="relu",
        use_skip_connections=True,
        cell_clip=3.0,
        projection_clip=3.0,
    )
    assert options.embedding_dim == 1024
    assert options.num_filters == 1120


@pytest.mark.parametrize(
    ("changes", "attribute", "value"),
    [
        ({"lstm.use_skip_connections": False}, "use_skip_connections", False),
        ({"lstm.use_skip_connections": ...}, "use_skip_connections", False),
        ({"lstm.cell_clip": None}, "cell_clip", None),
        ({"lstm.cell_clip": ...}, "cell_clip", None),
        ({"lstm.proj_clip": 0}, "projection_clip", None),
        ({"lstm.proj_clip": 1.5}, "projection_clip", 1.5),
        ({"lstm.n_layers": ...}, "num_layers", 1),
        ({"char_cnn.n_characters": 261}, "num_characters", 50),
        ({"char_cnn.n_characters": ...}, "num_characters", 50),
        ({"char_cnn.n_highway": 0}, "num_highways", 0),
        ({"char_cnn.n_highway": None}, "num_highways", 0),
        ({"char_cnn.n_highway": ...}, "num_highways", 0),
        ({"char_cnn.activation": "tanh"}, "activation", "tanh"),
        ({"char_cnn.activation": ...}, "activation", "relu"),
        ({"char_cnn.max_characters_per_token": 7}, "num_characters", 7),
        ({"char_cnn.max_characters_per_token": ...}, "num_characters", 50),
        # What training needs is passed over.
        ({"dropout": 0.1, "n_train_tokens": 768648884}, "num_layers", 2),
    ],
    ids=str,
)
def test_what_released_files_may_say(changes, attribute, value):
    assert getattr(parse_options(released(**changes)), attribute) == value


CLIPS = ("lstm.cell_clip", "lstm.proj_clip")
NO_CLIPS = (-3, "3", "", [], {}, False, float("nan"), float("inf"), -float("inf"), 10**400)
TINY = json.dumps(options_dict(OPTIONS))
# The options' content or changes of it, and what the error names beside the file.
ERRORS = [
    ({"lstm": ...}, "the key lstm"),
    ({"lstm.projection_dim": ...}, "the key lstm.projection_dim"),
    ({"lstm.projection_dim": "512"}, "lstm.projection_dim is '512'", "int"),
    ({"lstm.dim": 0}, "lstm.dim is 0", "positive"),
    ({"lstm.dim": True}, "lstm.dim is True"),
    ({"lstm.dim": 10**12}, "lstm.dim is 1000000000000", "at most 1048576"),
    ({"lstm.dim": 10**4000}, "lstm.dim is 1000", "at most 1048576"),
    ({"lstm.dim": 2**20}, "parameters", "at most 4294967296"),
    ({"lstm.n_layers": -1}, "lstm.n_layers is -1", "positive"),
    ({"lstm.n_layers": 10**6}, "lstm.n_layers is 1000000", "at most 256"),
    ({"lstm.use_skip_connections": 1}, "lstm.use_skip_connections is 1", "bool"),
    *(
        ({key: value}, f"{key} is", "positive number or null")
        for key in CLIPS
        for value in NO_CLIPS
    ),
    ({"char_cnn": 3}, "a JSON object around char_cnn"),
    ({"char_cnn.filters": ...}, "the key char_cnn.filters"),
    ({"char_cnn.filters": []}, "char_cnn.filters is empty"),
    ({"char_cnn.filters": [[1, 2, 3]]}, "[1, 2, 3]"),
    ({"char_cnn.filters": [[0, 2]]}, "[0, 2]"),
    ({"char_cnn.filters": [[1.0, 2]]}, "[1.0, 2]", "[width"),
    ({"char_cnn.filters": [[10**9, 2]]}, "[1000000000, 2]", "[width"),
    ({"char_cnn.filters": [[1, 2]] * 300}, "char_cnn.filters is [[1, 2]", "at most 256"),
    ({"char_cnn.n_highway": -1}, "char_cnn.n_highway is -1", "0 or more"),
    ({"char_cnn.n_highway": 257}, "char_cnn.n_highway is 257", "at most 256"),
    ({"char_cnn.n_characters": 300}, "char_cnn.n_characters is 300", "261 or 262"),
    ({"char_cnn.activation": "gelu"}, "char_cnn.activation is 'gelu'"),
    ({"char_cnn.activation": "x" * 10**6}, "char_cnn.activation is 'x", "..."),
    ({"char_cnn.max_characters_per_token": 6}, "max_characters_per_token is 6", "at least 7"),
    ({"char_cnn.max_characters_per_token": 2**21}, "per_token is 2097152", "at most 1048576"),
    ({"char_cnn.embedding": 16}, "a JSON object around char_cnn.embedding.dim"),
    *((text, "is not a JSON file") for text in ("", "{", "\udc80", "[" * 10**5, "\ufeff" + TINY)),
    *((text, "a JSON object") for text in ("[]", "3", '"lstm"', "null")),
    (TINY.replace("0.6", "NaN"), "lstm.cell_clip is nan"),
    (TINY.replace("0.6", "1e999"), "lstm.cell_clip is inf"),
    (TINY.replace("0.6", '""'), "lstm.cell_clip is ''"),
    ('{"lstm": ' + "1" * 5000 + "}", "is not a JSON file"),
    (" " * (1 << 20) + "{}", "1048576 bytes"),
    (TINY.replace('"dim": 10', '"dim": 10, "dim": 11'), "the key 'dim' comes twice"),
]


@pytest.mark.parametrize(("given", "named"), [(given, named) for given, *named in ERRORS])
def test_an_error_names_source_key_and_value_and_is_short(given, named, tmp_path):
    path = tmp_path / "options.json"
    is_text = isinstance(given, str)
    path.write_bytes(given.encode("utf-8", "surrogateescape") if is_text else b"")
    with pytest.raises(ValueError, match=r"options\.json") as error:
        read_options(path) if is_text else parse_options(released(**given), str(path))
    message = str(error.value)
    assert [one for one in (str(path), *named) if one not in message] == []
    assert len(message) < len(str(path)) + 300


@pytest.mark.parametrize("changes", [{}, {"num_highways": 0}, {"projection_dim": 12}], ids=str)
def test_the_number_of_parameters(changes):
    bilm = random_bilm(**changes)
    assert num_parameters(bilm.options) == sum(one.numel() for one in bilm.parameters())


@pytest.mark.parametrize(
    ("taken", "given", "message"),
    [
        ("lstm.cell_clip", "cell_clp", "F: lstm has no cell_clip, but 'cell_clp'"),
        ("char_cnn.n_highway", "highways", "F: char_cnn has no n_highway, but 'highways'"),
    ],
)
def test_a_default_does_not_stand_in_for_a_misspelled_key(taken, given, message):
    content = released(**{taken: ...})
    parse_options(content, source="F")
    content[taken.split(".")[0]][given] = 1
    with pytest.raises(ValueError, match=message):
        parse_options(content, source="F")
    content = released()
    content["lstm"]["what training needs"] = 1
    parse_options(content)


@pytest.mark.parametrize(
    "options", [OPTIONS, ElmoOptions(4, 5, 1, 2, ((3, 4),), 0, 9, "tanh", False, None, None)]
)
def test_written_and_read_again(options, tmp_path):
    path = tmp_path / "options.json"
    written = options_dict(options)
    assert written["char_cnn"]["n_characters"] == 262  # or AllenNLP refuses it
    path.write_text(json.dumps(written))
    assert read_options(path) == options


def test_a_missing_file_a_folder_and_a_fifo_are_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no options file"):
        read_options(tmp_path / "none.json")
    os.mkfifo(tmp_path / "options.json")
    with pytest.raises(FileNotFoundError, match="no options file"):
        read_options(tmp_path / "options.json")
    with pytest.raises(FileNotFoundError, match="no options file"):
        read_options(tmp_path)
