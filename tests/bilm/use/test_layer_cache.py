import copy
import logging
import multiprocessing

import pytest
import torch
from tiny_bilm import BATCHES, random_bilm, write

from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo
from elmo_plugin.bilm.use.layer_cache import LayerCache

PLACES = ["memory", "directory"]
# One sentence twice in a batch, one in two batches, one without tokens.
MORE = [*BATCHES, [BATCHES[0][1], ["Yes"], BATCHES[0][1]], [[], ["cat"]]]


def frozen(state="reset", **changes):
    bilm = random_bilm(**changes).requires_grad_(False)
    bilm.state = state
    return bilm


def count_runs(bilm):
    """The sentences of each run, from now on."""
    runs = []
    bilm.register_forward_pre_hook(lambda module, inputs: runs.append(len(inputs[0])))
    return runs


def assert_same(found, expected):
    assert torch.equal(found["mask"], expected["mask"])
    for ours, theirs in zip(found["activations"], expected["activations"], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


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


@pytest.mark.parametrize("change", ["weights", "options", "state", "dtype", "data"])
def test_vectors_of_other_weights_or_settings_are_not_taken(place, change):
    bilm, cache = frozen(), LayerCache(place)
    ids = batch_to_ids(BATCHES[0])
    before = cache.layers(bilm, ids)["activations"]
    if change == "weights":
        bilm.lstm.forward_layer_0.input_linearity.weight.add_(0.1)
    elif change == "options":
        bilm = frozen(cell_clip=0.2)
    elif change == "state":
        bilm = frozen("primed")
    elif change == "dtype":
        for module in bilm.lstm.layers("forward"):
            module.dtype = "int8"
        bilm.eval()
    else:
        bilm.lstm.forward_layer_0.input_linearity.weight.data.add_(0.1)
        bilm.eval()
        cache.weights.doubt()
    cache.weights.doubt()
    found = cache.layers(bilm, ids)
    assert not torch.allclose(found["activations"][1], before[1], atol=1e-4)
    assert_same(found, bilm(ids))


def test_what_is_full_takes_no_more_and_stays_right(place, caplog, tmp_path):
    bilm = frozen()
    # 6 + 2 * 12 floats for a token or boundary: 5 + 8 + 3 of these in the first batch.
    cache = LayerCache(place, most_bytes=14 * 30 * 4)
    runs = count_runs(bilm)
    for _ in range(3):
        assert_same(cache.layers(bilm, batch_to_ids(BATCHES[0])), bilm(batch_to_ids(BATCHES[0])))
    assert runs[0] == 3
    assert 0 < runs[2] < 3
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 14 * 30 * 4
    if place != "memory":
        assert "further sentences are not kept" in caplog.text


def cut(content):
    return content[:-3]


def flip(content):
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


def empty(content):
    return b""


def lengthen(content):
    return content + b"\0"


def other_header(content):
    return b"x" + content[1:]


@pytest.mark.parametrize("damage", [cut, flip, empty, lengthen, other_header])
def test_a_damaged_file_is_noticed_and_made_again(damage, tmp_path, caplog):
    bilm, ids = frozen(), batch_to_ids(BATCHES[0])
    expected = LayerCache(str(tmp_path)).layers(bilm, ids)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 3
    whole = files[1].read_bytes()
    files[1].write_bytes(damage(whole))
    runs = count_runs(bilm)
    with caplog.at_level(logging.WARNING):
        assert_same(LayerCache(str(tmp_path)).layers(bilm, ids), expected)
    assert runs == [1]
    assert f"{files[1]} is damaged" in caplog.text
    assert files[1].stat().st_size == len(whole)
    assert_same(LayerCache(str(tmp_path)).layers(bilm, ids), expected)
    assert runs == [1]


def test_a_file_under_anothers_name_is_noticed(tmp_path):
    bilm, ids = frozen(), batch_to_ids([["a", "b"], ["c", "d"]])
    expected = LayerCache(str(tmp_path)).layers(bilm, ids)
    one, other = (file for file in tmp_path.rglob("*") if file.is_file())
    one.write_bytes(other.read_bytes())
    assert_same(LayerCache(str(tmp_path)).layers(bilm, ids), expected)


def test_a_directory_that_cannot_be_written_to(tmp_path, caplog):
    cache = LayerCache(str(tmp_path / "cache"))
    (tmp_path / "cache").rmdir()
    (tmp_path / "cache").write_text("a file")
    bilm, ids = frozen(), batch_to_ids([["a", "b"]])
    with pytest.raises(NotADirectoryError):
        cache.layers(bilm, ids)


def test_a_full_disk(tmp_path, monkeypatch, caplog):
    bilm, ids = frozen(), batch_to_ids(BATCHES[0])
    cache = LayerCache(str(tmp_path))

    def no_space(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", no_space)
    assert_same(cache.layers(bilm, ids), bilm(ids))
    assert "No space left on device" in caplog.text
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


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
        worker.join(60)
        assert worker.exitcode == 0
    bilm, cache = frozen(), LayerCache(str(tmp_path))
    expected = [bilm(batch_to_ids(batch)) for batch in MORE]
    runs = count_runs(bilm)
    for batch, without in zip(MORE, expected, strict=True):
        assert_same(cache.layers(bilm, batch_to_ids(batch)), without)
    assert runs == []
    assert caplog.text == ""


def test_a_copy_starts_anew_in_the_same_place(place):
    bilm, cache = frozen(), LayerCache(place)
    cache.layers(bilm, batch_to_ids(BATCHES[0]))
    runs = count_runs(bilm)
    copy.deepcopy(cache).layers(bilm, batch_to_ids(BATCHES[0]))
    assert sum(runs) == (3 if place == "memory" else 0)


def test_elmo_with_a_cache(place, tmp_path):
    files = write(tmp_path)
    arguments = {"state": "primed", "dropout": 0.0, "do_layer_norm": True}
    with_cache = Elmo(*files, 2, cache=place, **arguments)
    without = Elmo(*files, 2, **arguments)
    assert with_cache.state_dict().keys() == without.state_dict().keys()
    runs = count_runs(with_cache._elmo_lstm)
    for batch in (*MORE, *MORE):
        ids = batch_to_ids(batch)
        found, expected = with_cache(ids), without(ids)
        assert torch.equal(found["mask"], expected["mask"])
        pairs = zip(found["elmo_representations"], expected["elmo_representations"], strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    assert 0 not in runs
    sum(layer.sum() for layer in found["elmo_representations"]).backward()
    assert with_cache.scalar_mixes[0].gamma.grad is not None


def test_what_cannot_be_cached(tmp_path):
    files = write(tmp_path)
    for arguments in (
        {},
        {"state": "reset", "requires_grad": True},
        {"state": "reset", "vocab_to_cache": ["", "a"]},
    ):
        with pytest.raises(ValueError, match="expected a frozen biLM from files in state"):
            Elmo(*files, cache="memory", **arguments)


def test_a_biLM_that_was_set_to_train_is_not_read_from_the_cache(tmp_path):
    elmo = Elmo(*write(tmp_path), cache="memory", state="reset", dropout=0.0)
    ids = batch_to_ids(BATCHES[0])
    elmo(ids)
    elmo._elmo_lstm.requires_grad_()
    elmo(ids)["elmo_representations"][0].sum().backward()
    assert elmo._elmo_lstm._token_embedder.char_conv_0.weight.grad is not None
