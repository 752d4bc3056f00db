import json
import re

import pytest
from tiny_bilm import OPTIONS

from elmo_plugin.bilm.model.options import ElmoOptions


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
    options = ElmoOptions.from_dict(released())
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
    assert getattr(ElmoOptions.from_dict(released(**changes)), attribute) == value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm": ...}, "F: the key lstm.projection_dim is missing|F: the key lstm"),
        ({"lstm.projection_dim": ...}, "F: the key lstm.projection_dim is missing"),
        ({"lstm.projection_dim": "512"}, "F: lstm.projection_dim is '512', expected .* int"),
        ({"lstm.dim": 0}, "F: lstm.dim is 0, expected a positive integer"),
        ({"lstm.dim": True}, "F: lstm.dim is True, expected"),
        ({"lstm.n_layers": -1}, "F: lstm.n_layers is -1, expected a positive integer"),
        ({"lstm.use_skip_connections": 1}, "F: lstm.use_skip_connections is 1, expected .* bool"),
        ({"lstm.cell_clip": -3}, "F: lstm.cell_clip is -3, expected a positive number or null"),
        ({"lstm.proj_clip": "3"}, "F: lstm.proj_clip is '3', expected a positive number or null"),
        ({"char_cnn": 3}, "F: expected a JSON object around char_cnn"),
        ({"char_cnn.filters": ...}, "F: the key char_cnn.filters is missing"),
        ({"char_cnn.filters": []}, "F: char_cnn.filters is empty"),
        ({"char_cnn.filters": [[1, 2, 3]]}, r"F: char_cnn.filters has the entry \[1, 2, 3\]"),
        ({"char_cnn.filters": [[0, 2]]}, r"F: char_cnn.filters has the entry \[0, 2\]"),
        ({"char_cnn.n_highway": -1}, "F: char_cnn.n_highway is -1, expected 0 or more"),
        ({"char_cnn.n_characters": 300}, "F: char_cnn.n_characters is 300, expected 261 or 262"),
        ({"char_cnn.activation": "gelu"}, "F: char_cnn.activation is 'gelu', expected one of"),
        (
            {"char_cnn.max_characters_per_token": 6},
            "F: char_cnn.max_characters_per_token is 6, expected at least 7",
        ),
        ({"char_cnn.embedding": 16}, "F: expected a JSON object around char_cnn.embedding.dim"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_refusals_name_source_key_value_and_need(changes, message):
    with pytest.raises(ValueError, match=message):
        ElmoOptions.from_dict(released(**changes), source="F")


@pytest.mark.parametrize("content", ["", "{", "\udc80"])
def test_a_file_that_is_not_json(content, tmp_path):
    path = tmp_path / "options.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=re.escape(f"{path} is not a JSON file")):
        ElmoOptions.from_file(path)


@pytest.mark.parametrize("content", ["[]", "3", '"lstm"', "null"])
def test_json_that_is_no_object(content, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: expected a JSON object")):
        ElmoOptions.from_file(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        ElmoOptions.from_file(tmp_path / "options.json")


@pytest.mark.parametrize(
    "options", [OPTIONS, ElmoOptions(4, 5, 1, 2, ((3, 4),), 0, 9, "tanh", False, None, None)]
)
def test_written_and_read_again(options, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options.to_dict()))
    assert ElmoOptions.from_file(path) == options
