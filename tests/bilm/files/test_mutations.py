"""
Files that were damaged at random: each gives the right result or one error that names the file, in
time, and never other numbers.
"""

import json
import os
import random
import sys
from pathlib import Path

import h5py
import pytest
import torch

from elmo_plugin.bilm.files.options import num_parameters, options_dict, read_options
from elmo_plugin.bilm.files.weights import load_weights, save_weights
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary
from tests.cases import first_quick
from tests.fresh_process import run_core as run
from tests.tiny_bilm import OPTIONS, random_bilm

MUTATIONS = 200


def flipped(content, generator):
    """Some bits."""
    changed = bytearray(content)
    for _ in range(generator.choice((1, 1, 2, 8))):
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def truncated(content, generator):
    return content[: generator.randrange(len(content))]


def overwritten(content, generator):
    """Some bytes in a row."""
    start = generator.randrange(len(content))
    other = generator.choice((b"\0", b"\xff", generator.randbytes(1))) * generator.randrange(1, 64)
    return content[:start] + other + content[start + len(other) :]


def inserted(content, generator):
    start = generator.randrange(len(content))
    return content[:start] + generator.randbytes(generator.randrange(1, 9)) + content[start:]


def removed(content, generator):
    start = generator.randrange(len(content))
    return content[:start] + content[start + generator.randrange(1, 9) :]


def doubled(content, generator):
    start, size = generator.randrange(len(content)), generator.randrange(1, 200)
    return content[: start + size] + content[start:]


BYTES = (flipped, truncated, overwritten, inserted, removed, doubled)


def mutations(content, seed):
    generator = random.Random(seed)
    for number in range(MUTATIONS):
        mutate = BYTES[number % len(BYTES)]
        yield f"{mutate.__name__} {number}", mutate(content, generator)


def one_error(read, path):
    """What was read, or `None` after an error that names the file."""
    try:
        return read()
    except (ValueError, FileNotFoundError, MemoryError) as error:
        message = str(error)
    assert str(path) in message
    assert len(message) < 2000
    return None


# --- options -----------------------------------------------------------------------------------

STRANGE = (
    None, True, False, 0, -1, 1, 2**20, 2**20 + 1, 2**63, 10**400, 0.5, -0.0, float("nan"),
    float("inf"), "", "3", "relu", [], [[]], [[1]], [[1, 2, 3]], [[0, 1]], [[1, 10**9]], {},
    {"dim": 1},
)  # fmt: skip


def strange_options(seed):
    """One value of the JSON replaced by a strange one, or a key taken out."""
    generator = random.Random(seed)
    for number in range(MUTATIONS):
        options = options_dict(OPTIONS)
        part = generator.choice(("lstm", "char_cnn", None))
        place = options if part is None else options[part]
        key = generator.choice(sorted(place))
        if generator.random() < 0.1:
            del place[key]
        else:
            place[key] = generator.choice(STRANGE)
        yield f"{part}.{key} {number}", json.dumps(options).encode()


@pytest.mark.parametrize("kind", ["bytes", "values"])
def test_options(kind, tmp_path):
    path = tmp_path / "options.json"
    whole = json.dumps(options_dict(OPTIONS), indent=1).encode()
    read = 0
    for name, content in mutations(whole, 1) if kind == "bytes" else strange_options(1):
        path.write_bytes(content)
        options = one_error(lambda: read_options(path), path)
        if options is None:
            continue
        read += 1
        # What the file says is what was read.
        said, found = json.loads(content), options_dict(options)
        for part, key in ((p, k) for p in found for k in found[p]):
            assert kind == "values" or key in said[part], name
            given = said[part].get(key)
            if given is None or (key == "n_characters" and given == 261):
                continue
            assert found[part][key] == given or (given == 0 and found[part][key] is None), name
        assert num_parameters(options) <= 2**32
    assert 0 < read < MUTATIONS


# --- weights: in a process of its own, since HDF5 is C -------------------------------------------


def links(path, generator):
    """A dataset or group becomes something that leads out of the file, or nowhere."""
    keys = ["char_embed", "CNN/W_cnn_0", "CNN", "CNN_proj/b_proj", "RNN_0", "RNN_1/RNN"]
    key = generator.choice(keys)
    secret = str(path.with_name("secret.hdf5"))
    with h5py.File(path, "r+") as file:
        shape = getattr(file[key], "shape", (3,))
        del file[key]
        kind = generator.randrange(6)
        if kind == 0:
            file[key] = h5py.ExternalLink(secret, key)
        elif kind == 1:
            file[key] = h5py.SoftLink(generator.choice(["/nowhere", f"/{key}", "/char_embed"]))
        elif kind == 2:
            size = 4 * int(torch.tensor(shape).prod())
            file.create_dataset(key, shape, "f4", external=[(secret, 0, size)])
        elif kind == 3:
            layout = h5py.VirtualLayout(shape, "f4")
            layout[...] = h5py.VirtualSource(secret, key, shape)
            file.create_virtual_dataset(key, layout)
        elif kind == 4:
            file[key] = h5py.ExternalLink(str(path.with_name("fifo")), key)
        else:
            types = ["i4", "f2", "f8", "S3", "c8", "?", h5py.string_dtype(), ">f4"]
            file.create_dataset(key, shape, generator.choice(types))


def mutate_weights(folder, dtype):
    """Prints how many were read, and how many refused."""
    torch.set_num_threads(1)
    folder = Path(folder)
    path = folder / "weights.hdf5"
    save_weights(random_bilm(), path, dtype=dtype)
    save_weights(random_bilm(seed=5), folder / "secret.hdf5")
    os.mkfifo(folder / "fifo")
    whole = path.read_bytes()
    bilm = random_bilm(seed=2)
    before = {name: value.clone() for name, value in bilm.state_dict().items()}
    load_weights(bilm, path)
    expected = {name: value.clone() for name, value in bilm.state_dict().items()}
    generator = random.Random(7)
    results = []
    for name, content in mutations(whole, 3):
        path.write_bytes(content if not name.startswith("doubled") else whole)
        if name.startswith("doubled"):
            links(path, generator)
        bilm.load_state_dict(before)
        print(name, file=sys.stderr, flush=True)
        results.append(one_error(lambda: load_weights(bilm, path) or True, path) is not None)
        wanted = expected if results[-1] else before
        for key, value in bilm.state_dict().items():
            assert torch.equal(value, wanted[key]), (name, key)
    print(sum(results), len(results))


@first_quick("dtype", ["float32", "float16"])
def test_weights(dtype, tmp_path):
    code = f"from test_mutations import *; mutate_weights({str(tmp_path)!r}, {dtype!r})"
    child = run(code)
    read, count = map(int, child.stdout.split())
    assert count == MUTATIONS
    assert 0 < read < MUTATIONS


# --- vocabulary ----------------------------------------------------------------------------------


def test_vocabulary(tmp_path):
    path = tmp_path / "vocabulary.txt"
    words = ["<S>", "</S>", "<UNK>", "the", "é", "Überraschung", ",", *map(str, range(60))]
    whole = ("\n".join(words) + "\n").encode()
    read = 0
    for name, content in mutations(whole, 4):
        path.write_bytes(content)
        vocabulary = one_error(lambda: WordVocabulary.from_file(path), path)
        if vocabulary is None:
            continue
        read += 1
        # Words are the lines, each with its line's number.
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
        assert vocabulary.words == [line.removesuffix("\r") for line in lines], name
        assert [vocabulary.id(word) for word in vocabulary.words] == list(range(len(lines)))
    assert 0 < read < MUTATIONS
