from pathlib import Path

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, Token
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo, WorkerInfo
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.data.readers.sampled import SampledDatasetReader

READER = {"type": "sequence_tagging", "token_indexers": {"elmo": {"type": "elmo_characters"}}}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "train").write_text("".join(f"word{i}###N\n" for i in range(400)))
    return str(tmp_path / "train")


def words(path, **values):
    params = Params({"type": "sampled", "reader": dict(READER), **values})
    reader = DatasetReader.from_params(params)
    return [instance["tokens"][0].text for instance in reader.read(path)]


def test_keeps_a_part_in_order_and_the_same_one_again(path):
    kept = words(path, fraction=0.25)
    assert 70 < len(kept) < 130
    assert kept == words(path, fraction=0.25) != words(path, fraction=0.25, seed=1)
    assert [int(word[4:]) for word in kept] == sorted(int(word[4:]) for word in kept)


def test_a_smaller_part_is_in_a_larger_one(path):
    small, half, whole = (set(words(path, fraction=part)) for part in (0.1, 0.5, 1))
    assert small < half < whole
    assert len(whole) == 400


def test_indexes_as_its_reader_does(path):
    params = Params({"type": "sampled", "reader": dict(READER), "fraction": 0.5})
    reader = DatasetReader.from_params(params)
    instance = next(iter(reader.read(path)))
    reader.apply_token_indexers(instance)
    assert set(instance["tokens"].token_indexers) == {"elmo"}


class EachLine(DatasetReader):
    """Leaves its shares to AllenNLP."""

    def _read(self, file_path):
        for line in Path(file_path).read_text().split():
            yield Instance({"tokens": TextField([Token(line)])})

    def apply_token_indexers(self, instance):
        instance["tokens"].token_indexers = {"tokens": SingleIdTokenIndexer()}


def test_processes_and_workers_read_a_share_each(path):
    shares = []
    for rank in range(2):
        for worker in range(2):
            reader = SampledDatasetReader(EachLine(), 0.5)
            reader._set_distributed_info(DistributedInfo(2, rank))
            reader._set_worker_info(WorkerInfo(2, worker))
            shares.append([one["tokens"][0].text for one in reader.read(path)])
            one = next(iter(reader.read(path)))
            assert one["tokens"]._token_indexers is None  # as a worker must leave it
    assert all(30 < len(share) < 70 for share in shares)
    assert len({word for share in shares for word in share}) == sum(map(len, shares))
    places = [{int(word[4:-4]) // 4 for word in share} for share in shares]
    assert len({frozenset(one) for one in places}) == 4  # not the same in each


def test_a_share_of_which_nothing_is_kept_is_no_error(path):
    kept = []
    for worker in range(40):
        reader = SampledDatasetReader(EachLine(), 0.05)
        reader._set_worker_info(WorkerInfo(40, worker))
        kept.append(len(list(reader.read(path))))
    assert 0 in kept
    assert 5 < sum(kept) < 40


@pytest.mark.parametrize(
    ("fraction", "message"),
    [
        *((one, f"fraction is {one}, expected") for one in (0, -0.5, 1.5)),
        (1e-5, "train: a fraction of 1e-05 keeps none of 400"),
    ],
)
def test_a_fraction_that_is_none_or_keeps_nothing(path, fraction, message):
    with pytest.raises(ConfigurationError, match=message):
        words(path, fraction=fraction)
