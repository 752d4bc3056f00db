import copy
import logging
import multiprocessing
import os
import pwd
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_plugin.bilm.files import blob_store
from elmo_plugin.bilm.kernels.backend import WeightsModule, use_backend
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo
from elmo_plugin.bilm.use.layer_cache import LayerCache
from tests.cases import Scale
from tests.fresh_process import run_core as run
from tests.tiny_bilm import BATCHES, random_bilm, replica_of

PLACES = ["memory", "directory"]
# One sentence twice in a batch, one in two batches, one without tokens.
MORE = [*BATCHES, [BATCHES[0][1], ["Yes"], BATCHES[0][1]], [[], ["cat"]]]


def frozen(state="reset", **changes):
    return random_bilm(state=state, **changes).requires_grad_(False)


@pytest.fixture(autouse=True)
def _run_as_it_was(monkeypatch):
    monkeypatch.setattr(BiLm, "run", BiLm.run)


def count_runs(bilm):
    """The sentences of each run, from now on; the test's end undoes it."""
    runs, run = [], BiLm.run

    def counted(self, inputs, *more):
        if self is bilm:
            runs.append(len(inputs))
        return run(self, inputs, *more)

    BiLm.run = counted
    return runs


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return "memory" if request.param == "memory" else str(tmp_path / "new" / "cache")


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_the_same_vectors_from_one_run_of_each_sentence(place, state):
    bilm, cache = frozen(state), LayerCache(place)
    expected = [bilm(batch_to_ids(batch)) for batch in MORE]
    runs = count_runs(bilm)
    for batch, without in zip(MORE, expected, strict=True):
        assert_same(cache.layers(bilm, batch_to_ids(batch)), without)
    distinct = {tuple(sentence) for batch in MORE for sentence in batch}
    assert sum(runs) == len(distinct)
    runs.clear()
    for batch, without in zip(MORE, expected, strict=True):
        again = cache.layers(bilm, batch_to_ids(batch))
        assert_same(again, without)
        # What was handed out may be written to.
        for layer in again["activations"]:
            layer.zero_()
    assert_same(cache.layers(bilm, batch_to_ids(MORE[0])), expected[0])
    assert runs == []


def test_no_sentences_and_wrong_ids(place):
    bilm, cache = frozen(), LayerCache(place)
    empty = torch.zeros(0, 3, 50, dtype=torch.long)
    assert_same(cache.layers(bilm, empty), bilm(empty))
    ids = batch_to_ids(BATCHES[0])
    cache.layers(bilm, ids)
    with pytest.raises(ValueError, match="expected 0 to"):
        cache.layers(bilm, ids + 65536)


class Scaled(torch.nn.Module):
    def __init__(self, bilm, hands_on):
        super().__init__()
        self.bilm, self.scale, self.hands_on = bilm, [2.0], hands_on

    def forward(self, ids):
        found = self.bilm(ids)
        return {**found, "activations": [self.scale[0] * one for one in found["activations"]]}

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "hands_on" or not self.hands_on:
                raise
            return getattr(self.bilm, name)


@pytest.mark.parametrize("hands_on", [False, True])
def test_a_wrapper_around_the_bilm_is_run(place, hands_on):
    wrapper, cache = Scaled(frozen(), hands_on), LayerCache(place)
    ids = batch_to_ids(BATCHES[0])
    for wrapper.scale[0] in (2.0, 5.0):
        found = cache.layers(wrapper, ids)
        torch.testing.assert_close(found["activations"], wrapper(ids)["activations"])


def test_each_backend_has_entries_of_its_own():
    bilm, cache, ids = frozen(dtype="int8"), LayerCache("memory"), batch_to_ids(BATCHES[0])
    with use_backend("reference"):
        cache.layers(bilm, ids)
    assert_same(cache.layers(bilm, ids), bilm(ids))


def test_what_is_full_takes_no_more_and_stays_right(place, caplog, tmp_path):
    bilm = frozen()
    # 6 + 2 * 12 floats for a token or boundary: 5 + 8 + 3 of these in the first batch.
    batches, most_bytes = [BATCHES[0]], 14 * 30 * 4
    if place != "memory":  # a file grows by pages: more sentences than fit
        batches = [[[f"{number}"] * 20 for number in range(i, i + 20)] for i in (0, 20, 40)]
        most_bytes = 8 << 14
    cache = LayerCache(place, most_bytes=most_bytes)
    runs = count_runs(bilm)
    for batch in batches * 3:
        assert_same(cache.layers(bilm, batch_to_ids(batch)), bilm(batch_to_ids(batch)))
    number = sum(map(len, batches))
    # All in the first pass and some in the others, beside the runs without the cache.
    assert number < sum(runs) - 3 * number < 3 * number
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) <= most_bytes
    if place != "memory":
        assert caplog.text.count("further sentences are not kept") == 1


def database(folder):
    """The one file of a directory, and a connection to it."""
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    return path, sqlite3.connect(path, isolation_level=None)


def flip(value):
    return value[:100] + bytes([value[100] ^ 1]) + value[101:]


DAMAGE = {
    "cut": "UPDATE entries SET value = substr(value, 1, length(value) - 3) WHERE rowid = 2",
    "flipped": "UPDATE entries SET value = flip(value) WHERE rowid = 2",
    "empty": "UPDATE entries SET value = x'' WHERE rowid = 2",
    "longer": "UPDATE entries SET value = CAST(value || x'00' AS BLOB) WHERE rowid = 2",
    "text": "UPDATE entries SET value = 'a' WHERE rowid = 2",
    "nothing": "UPDATE entries SET value = NULL, checksum = NULL WHERE rowid = 2",
    "another checksum": "UPDATE entries SET checksum = x'00' WHERE rowid = 2",
    "anothers": "UPDATE entries SET value = (SELECT value FROM entries WHERE rowid = 1), checksum "
    "= (SELECT checksum FROM entries WHERE rowid = 1) WHERE rowid = 2",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_noticed_and_made_again(damage, tmp_path, caplog):
    bilm, ids = frozen(), batch_to_ids(BATCHES[0])
    expected = LayerCache(str(tmp_path)).layers(bilm, ids)
    _, connection = database(tmp_path)
    connection.create_function("flip", 1, flip)
    (whole,) = connection.execute("SELECT value FROM entries WHERE rowid = 2").fetchone()
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (3,)
    connection.execute(DAMAGE[damage])
    runs = count_runs(bilm)
    with caplog.at_level(logging.WARNING):
        assert_same(LayerCache(str(tmp_path)).layers(bilm, ids), expected)
    assert runs == [1]
    assert f"an entry of the cache {tmp_path} is damaged" in caplog.text
    sizes = connection.execute("SELECT length(value) FROM entries").fetchall()
    assert len(sizes) == 3
    assert (len(whole),) in sizes
    assert_same(LayerCache(str(tmp_path)).layers(bilm, ids), expected)
    assert runs == [1]


def scattered(whole):
    """SQLite's message then quotes bytes that are no UTF-8."""
    content = bytearray(whole)
    content[5000::97] = bytes(one ^ 0xFF for one in content[5000::97])
    return content


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"not SQLite at all " * 1000,
        lambda whole: b"SQLite format 3\0" + b"\xff" * 40_000,
        lambda whole: whole[: len(whole) // 3],
        lambda whole: whole[:20_000] + b"\xff" * 50_000 + whole[70_000:],
        scattered,
    ],
    ids=["other", "header", "first", "middle", "scattered"],
)
def test_a_damaged_file_is_noticed_and_made_again(damage, tmp_path, caplog):
    bilm, ids = frozen(), batch_to_ids([[f"{number}"] * 20 for number in range(60)])
    expected = LayerCache(str(tmp_path)).layers(bilm, ids)
    path, _ = database(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    cache = LayerCache(str(tmp_path))
    for _ in range(3):
        assert_same(cache.layers(bilm, ids), expected)
    assert "damaged" in caplog.text
    runs = count_runs(bilm)
    assert_same(LayerCache(str(tmp_path)).layers(bilm, ids), expected)
    assert runs == []


OWN = f"user-{os.geteuid()}"
NOT_PLAIN = "expected a plain folder and file"


def own(place):
    (place / OWN).mkdir(mode=0o700, parents=True)
    return place / OWN


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda place, other: place.write_text("mine"), "exists"),
        (lambda place, other: os.mkfifo(place), "exists"),
        (lambda place, other: (own(place) / "layers.sqlite").mkdir(), NOT_PLAIN),
        (lambda place, other: os.mkfifo(own(place) / "layers.sqlite"), NOT_PLAIN),
        (lambda place, other: (place.mkdir(), (place / OWN).symlink_to(other)), NOT_PLAIN),
        (lambda place, other: (own(place) / "layers.sqlite").symlink_to(other / "a"), NOT_PLAIN),
        (lambda place, other: own(place).chmod(0o777), "can be written to by others, expected by"),
    ],
    ids=["file", "fifo", "folder in it", "fifo in it", "link to a folder", "link in it", "shared"],
)
def test_a_run_goes_on_without_a_place_for_the_cache(spoil, message, tmp_path, caplog):
    place, other = tmp_path / "cache", tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("mine")
    spoil(place, other)
    before = sorted(other.iterdir())
    bilm, cache = frozen(), LayerCache(str(place))
    for _ in range(3):
        for batch in BATCHES:
            assert_same(cache.layers(bilm, batch_to_ids(batch)), bilm(batch_to_ids(batch)))
    (record,) = caplog.records  # one warning
    assert message in record.getMessage()
    assert "the run continues without it" in record.getMessage()
    assert sorted(other.iterdir()) == before


def test_another_users_entries_are_not_read(tmp_path, caplog, monkeypatch):
    bilm, ids = frozen(), batch_to_ids(BATCHES[0])
    expected = LayerCache(str(tmp_path)).layers(bilm, ids)
    path, connection = database(tmp_path)
    connection.execute("DELETE FROM entries")
    owner = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    # A user of one's own folder: what was planted at its name is the other's.
    path.parent.rename(tmp_path / f"user-{os.geteuid()}")
    assert_same(LayerCache(str(tmp_path)).layers(bilm, ids), expected)
    assert f"belongs to {owner} (user {os.getuid()}), expected your own" in caplog.text
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)


FULL = """
import resource, signal, sys
import logging
logging.basicConfig()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tests.bilm.use.test_layer_cache import *

bilm, ids = frozen(), batch_to_ids([[f"{number}"] * 20 for number in range(60)])
cache = LayerCache(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for _ in range(3):
    assert_same(cache.layers(bilm, ids), bilm(ids))
"""


def test_a_full_disk(tmp_path):
    child = run(FULL, tmp_path)
    assert child.stderr.count("further sentences are not kept") == 1
    # What was there before is whole.
    _, connection = database(tmp_path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_process_that_keeps_the_file_locked_stops_no_run(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(blob_store, "SECONDS_TO_WAIT", 0.01)
    bilm, ids = frozen(), batch_to_ids(BATCHES[0])
    expected = LayerCache(str(tmp_path)).layers(bilm, ids)
    _, connection = database(tmp_path)
    connection.execute("BEGIN EXCLUSIVE")
    cache = LayerCache(str(tmp_path))
    for _ in range(3):
        assert_same(cache.layers(bilm, ids), expected)
    (record,) = caplog.records
    assert "is locked by another process" in record.getMessage()


def test_a_file_system_that_cannot_lock_is_said_once(tmp_path, caplog, monkeypatch):
    def fail(path, most_pages):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_LOCK
        raise error

    monkeypatch.setattr(blob_store, "_connect", fail)
    bilm, cache = frozen(), LayerCache(str(tmp_path))
    for batch in BATCHES:
        assert_same(cache.layers(bilm, batch_to_ids(batch)), bilm(batch_to_ids(batch)))
    (record,) = caplog.records
    assert "cannot be used (disk I/O error)" in record.getMessage()


@pytest.mark.parametrize("warm", [True, False], ids=["known before", "not known before"])
def test_weights_that_changed_unseen_are_never_kept(place, warm, tmp_path):
    """Neither under their old name nor computed by what was derived of the old ones."""
    bilm, cache, others = frozen("primed"), LayerCache(place), LayerCache(place)
    first, second = (batch_to_ids(batch) for batch in BATCHES[:2])
    # No write to it is counted, nor seen in the few elements that are compared at each use.
    weight = bilm._elmo_lstm.forward_layer_0.input_linearity.weight.data
    before = weight.clone()
    bilm(first)  # derives what it needs
    if warm:
        cache.layers(bilm, first)
    weight[1, 1:] += 0.5
    expected = frozen("primed")
    expected._elmo_lstm.forward_layer_0.input_linearity.weight.data[1, 1:] += 0.5
    assert_same(cache.layers(bilm, second), expected(second))
    # With the first weights again, in this process and in another.
    weight.copy_(before)
    fresh = frozen("primed")
    assert_same(cache.layers(bilm, batch_to_ids(BATCHES[2])), fresh(batch_to_ids(BATCHES[2])))
    assert_same(cache.layers(bilm, second), fresh(second))
    assert_same(others.layers(fresh, second), fresh(second))


def test_several_threads_share_a_cache(place):
    bilm, cache = frozen(), LayerCache(place)
    expected = [bilm(batch_to_ids(batch)) for batch in MORE]

    def work(index):
        return cache.layers(bilm, batch_to_ids(MORE[index % len(MORE)]))

    with ThreadPoolExecutor(4) as pool:
        for index, found in enumerate(pool.map(work, range(12 * len(MORE)))):
            assert_same(found, expected[index % len(MORE)])


def write_many(root, seed):
    torch.set_num_threads(1)
    bilm, cache = frozen(), LayerCache(root)
    for _ in range(3):
        for batch in MORE:
            cache.layers(bilm, batch_to_ids(batch))


def test_several_processes_share_a_directory(tmp_path, caplog):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=write_many, args=(str(tmp_path), k)) for k in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(400)
        assert worker.exitcode == 0
    bilm, cache = frozen(), LayerCache(str(tmp_path))
    expected = [bilm(batch_to_ids(batch)) for batch in MORE]
    runs = count_runs(bilm)
    for batch, without in zip(MORE, expected, strict=True):
        assert_same(cache.layers(bilm, batch_to_ids(batch)), without)
    assert runs == []
    assert caplog.text == ""


def test_a_replica_of_data_parallel_runs_itself():
    bilm, cache = frozen(), LayerCache("memory")
    ids = batch_to_ids(BATCHES[0])
    assert_same(cache.layers(replica_of(bilm), ids), bilm(ids))


def test_a_copy_starts_anew_in_the_same_place(place):
    bilm, cache = frozen(), LayerCache(place)
    cache.layers(bilm, batch_to_ids(BATCHES[0]))
    runs = count_runs(bilm)
    copy.deepcopy(cache).layers(bilm, batch_to_ids(BATCHES[0]))
    assert sum(runs) == (3 if place == "memory" else 0)


def test_elmo_with_a_cache(place, files):
    arguments = {"state": "primed", "dropout": 0.0, "do_layer_norm": True}
    with_cache = Elmo(*files, 2, cache=place, **arguments)
    without = Elmo(*files, 2, **arguments)
    assert with_cache.state_dict().keys() == without.state_dict().keys()
    runs = count_runs(with_cache._elmo_lstm)
    for ids in map(batch_to_ids, (*MORE, *MORE)):
        found = with_cache(ids)
        torch.testing.assert_close(found, without(ids), atol=1e-6, rtol=1e-6)
    assert 0 not in runs
    sum(layer.sum() for layer in found["elmo_representations"]).backward()
    assert with_cache.scalar_mixes[0].gamma.grad is not None


def test_what_cannot_be_cached(files):
    for arguments in (
        {"state": "reset", "requires_grad": True},
        {"state": "reset", "vocab_to_cache": ["", "a"]},
    ):
        with pytest.raises(ValueError, match="expected a frozen biLM from files in state"):
            Elmo(*files, cache="memory", **arguments)


def test_a_state_that_was_set_to_be_carried_is_not_read_from_the_cache(place, files):
    cached = Elmo(*files, cache=place, state="primed", dropout=0.0)
    carried = Elmo(*files, state="carry", dropout=0.0)
    ids = batch_to_ids(BATCHES[0])
    cached(ids)
    cached._elmo_lstm.lstm.stateful = True
    for _ in range(3):
        found, expected = (one(ids)["elmo_representations"][0] for one in (cached, carried))
        torch.testing.assert_close(found, expected)


def test_a_biLM_that_was_set_to_train_is_not_read_from_the_cache(files):
    elmo = Elmo(*files, cache="memory", state="reset", dropout=0.0)
    ids = batch_to_ids(BATCHES[0])
    elmo(ids)
    elmo._elmo_lstm.requires_grad_()
    elmo(ids)["elmo_representations"][0].sum().backward()
    assert elmo._elmo_lstm._token_embedder.char_conv_0.weight.grad is not None


def weights(bilm, factor):
    weight = frozen().lstm.forward_layer_0.input_linearity.weight
    bilm.lstm.forward_layer_0.input_linearity.weight.copy_(factor * weight)


def data(bilm, factor):
    weight = frozen().lstm.forward_layer_0.input_linearity.weight
    bilm.lstm.forward_layer_0.input_linearity.weight.data.copy_(factor * weight)


def options(bilm, factor):
    return frozen(cell_clip=0.1 * factor)


def state(bilm, factor):
    bilm.state = "reset" if factor == 1.0 else "primed"


def dtype(bilm, factor):
    for module in bilm.modules():
        if isinstance(module, WeightsModule):
            module.dtype = None if factor == 1.0 else "int8"
    bilm.eval()


def parametrized(bilm, factor):
    layer = bilm.lstm.forward_layer_0.input_linearity
    if not torch.nn.utils.parametrize.is_parametrized(layer):
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", Scale(factor))
    layer.parametrizations.weight[0].factor = factor


def buffered(bilm, factor):
    layer = bilm.lstm.forward_layer_0.input_linearity
    weight = factor * random_bilm().lstm.forward_layer_0.input_linearity.weight.detach()
    if "weight" in layer._parameters:
        del layer.weight
    layer.register_buffer("weight", weight)


def hooked(bilm, factor):
    bilm.char_cnn.register_forward_hook(
        lambda module, inputs, output: (
            output | {"token_embedding": factor * output["token_embedding"]}
        )
    )


def hooked_outside(bilm, factor):
    bilm.register_forward_hook(
        lambda module, inputs, output: (
            output | {"activations": [factor * one for one in output["activations"]]}
        )
    )


def without_skip_connections(bilm, factor):
    bilm.lstm.use_skip_connections = factor == 1.0


def other_activation(bilm, factor):
    bilm.char_cnn._activation = torch.relu if factor == 1.0 else torch.tanh


def own_activation(bilm, factor):
    bilm.char_cnn._activation = lambda values: factor * torch.relu(values)


def own_run_vectors(bilm, factor):
    run = type(bilm).run_vectors
    bilm.run_vectors = lambda vectors, *more: run(bilm, factor * vectors, *more)


def own_stack(bilm, factor):
    stack = type(bilm.lstm).stack
    bilm.lstm.stack = lambda name, rows, *more: stack(bilm.lstm, name, factor * rows, *more)


@pytest.mark.parametrize(
    "change",
    [
        weights, data, options, state, dtype, parametrized, buffered, hooked, hooked_outside,
        without_skip_connections, other_activation, own_activation, own_run_vectors, own_stack,
    ],
)  # fmt: skip
def test_vectors_of_other_weights_or_settings_are_not_taken(place, change):
    ids, cache, found = batch_to_ids(BATCHES[0]), LayerCache(place), []
    for factor in (1.0, 3.0):
        bilm = frozen()
        bilm = change(bilm, factor) or bilm
        found.append(cache.layers(bilm, ids))
        assert_same(found[-1], bilm(ids))
    assert not torch.allclose(*(one["activations"][-1] for one in found), atol=1e-4)
    for factor in (5.0, 1.0):  # on the same biLM
        bilm = change(bilm, factor) or bilm
        assert_same(cache.layers(bilm, ids), bilm(ids))
