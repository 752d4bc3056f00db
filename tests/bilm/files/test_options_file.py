import json
import os
import re

import pytest
from tiny_bilm import OPTIONS

from elmo_plugin.bilm.files.options import options_dict, read_options
from elmo_plugin.bilm.model.options import ElmoOptions


@pytest.mark.parametrize("content", ["", "{", "\udc80"])
def test_a_file_that_is_not_json(content, tmp_path):
    path = tmp_path / "options.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=re.escape(f"{path} is not a JSON file")):
        read_options(path)


@pytest.mark.parametrize("content", ["[]", "3", '"lstm"', "null"])
def test_json_that_is_no_object(content, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: expected a JSON object")):
        read_options(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_options(tmp_path / "options.json")


@pytest.mark.parametrize(
    "options", [OPTIONS, ElmoOptions(4, 5, 1, 2, ((3, 4),), 0, 9, "tanh", False, None, None)]
)
def test_written_and_read_again(options, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options_dict(options)))
    assert read_options(path) == options


TINY = json.dumps(options_dict(OPTIONS))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TINY.replace("0.6", "NaN"), "lstm.cell_clip is nan, expected a positive number or null"),
        (TINY.replace("0.6", "1e999"), "lstm.cell_clip is inf, expected a positive number or null"),
        (TINY.replace("0.6", '""'), "lstm.cell_clip is '', expected a positive number or null"),
        ('{"lstm": ' + "1" * 5000 + "}", "is not a JSON file"),
        ("[" * 100_000, "is not a JSON file"),
        (" " * (1 << 20) + "{}", "has more than 1048576 bytes"),
        ("\ufeff" + TINY, "is not a JSON file"),
        (TINY.replace('"dim": 10', '"dim": 10, "dim": 11'), "the key 'dim' comes twice"),
    ],
    ids=lambda value: value[:40],
)
def test_what_json_allows_and_a_bilm_does_not(content, message, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_options(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 300


def test_a_fifo_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "options.json")
    with pytest.raises(FileNotFoundError, match="no options file"):
        read_options(tmp_path / "options.json")
    with pytest.raises(FileNotFoundError, match="no options file"):
        read_options(tmp_path)
