import gzip

import pytest
from allennlp.data import DatasetReader
from allennlp.data.token_indexers import SingleIdTokenIndexer

import elmo_plugin.plugin  # noqa: F401


@pytest.mark.parametrize(
    ("reader", "path"),
    [
        ("conll2003", "ner/dev.txt"),
        ("coref", "coref/dev.gold_conll"),
        ("snli", "snli/dev.jsonl"),
        ("squad", "squad/dev.json"),
        ("srl", "srl/dev/sample.gold_conll"),
        ("sst_tokens", "sst/dev.txt"),
    ],
)
def test_gzip_file_gives_the_same_instances(tmp_path, repository, reader, path):
    source = repository / "examples" / path
    packed = tmp_path / f"{source.name}.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    more = {"max_span_width": 5} if reader == "coref" else {}
    indexers = {"tokens": SingleIdTokenIndexer()}
    made = DatasetReader.by_name(reader)(token_indexers=indexers, **more)
    expected = [str(instance) for instance in made.read(source)]
    assert [str(instance) for instance in made.read(packed)] == expected
    assert expected
