"""Every task reader: compressed, streamed, and AllenNLP's `sharded` around it."""

import gzip
import shutil

import pytest
from allennlp.common import Params
from allennlp.data import DataLoader, DatasetReader, Vocabulary
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo, WorkerInfo

from elmo_plugin import plugin
from tests.cases import first_quick

READERS = {
    "conll2003": ("examples/ner/dev.txt", {}),
    "coref": ("examples/coref/dev.gold_conll", {"max_span_width": 3}),
    "snli": ("examples/snli/dev.jsonl", {}),
    "squad": ("examples/squad/dev.json", {}),
    "srl": ("examples/srl/dev/sample.gold_conll", {}),
    "sst_tokens": ("examples/sst/dev.txt", {}),
}


@pytest.mark.parametrize("name", READERS)
def test_a_gzip_file_gives_the_same_instances(name, tmp_path, repository):
    file, arguments = READERS[name]
    (tmp_path / "packed.gz").write_bytes(gzip.compress((repository / file).read_bytes()))
    reader = DatasetReader.from_params(Params({"type": name, **arguments}))
    expected = [str(instance) for instance in reader.read(repository / file)]
    assert [str(instance) for instance in reader.read(tmp_path / "packed.gz")] == expected != []


@pytest.mark.parametrize("name", ["coref", "snli", "srl", "sst_tokens"])
def test_files_are_streamed(name, tmp_path, repository):
    file, arguments = READERS[name]
    text = (repository / file).read_text()
    (tmp_path / "data").write_text(f"{text}\n#begin document (x); part 0\n(broken")
    reader = DatasetReader.from_params(Params({"type": name, **arguments}))
    instances = reader.read(tmp_path / "data")
    assert str(next(iter(instances))) == str(next(iter(reader.read(repository / file))))
    with pytest.raises(ValueError, match="data, line"):
        list(instances)


@first_quick("name", [one for one in READERS if one != "sst_tokens"], count=2)
def test_a_worker_without_the_process_group_reads_its_processs_part(name, repository):
    """As one that is spawned: it has the numbers in the reader alone."""
    file, arguments = READERS[name]
    reader = DatasetReader.from_params(Params({"type": name, **arguments}))
    whole = list(reader._read(str(repository / file)))
    reader._distributed_info = DistributedInfo(world_size=3, global_rank=1)
    reader._set_worker_info(WorkerInfo(num_workers=2, id=1))
    found = [str(one) for one in reader._read(str(repository / file))]
    assert found == [str(one) for one in whole[4::6]]
    assert found


@first_quick("name", READERS, count=3)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_sharded_readers_give_indexed_instances(name, num_workers, tmp_path, repository):
    assert plugin
    file, arguments = READERS[name]
    for shard in ("a", "b"):
        shutil.copy(repository / file, tmp_path / shard)

    def base():
        indexers = {"elmo": {"type": "elmo_characters"}}
        return {"type": name, "token_indexers": indexers, **arguments}

    single = DatasetReader.from_params(Params(base()))
    number = sum(1 for _ in single.read(str(tmp_path / "a")))
    loader = DataLoader.from_params(
        Params({"batch_size": 2, "num_workers": num_workers}),
        reader=DatasetReader.from_params(Params({"type": "sharded", "base_reader": base()})),
        data_path=f"{tmp_path}/*",
    )
    instances = list(loader.iter_instances())
    assert len(instances) == 2 * number
    loader.index_with(Vocabulary.from_instances(instances))
    batch = next(iter(loader))
    text = next(key for key in batch if key in ("tokens", "text", "premise", "passage"))
    assert set(batch[text]["elmo"]) == {"elmo_tokens"}
