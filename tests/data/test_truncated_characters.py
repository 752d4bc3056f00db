import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance, TokenIndexer, Vocabulary
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token

import elmo_plugin.plugin  # noqa: F401


def indexer(**arguments):
    params = {"type": "truncated_characters", "min_padding_length": 3, **arguments}
    return TokenIndexer.from_params(Params(params))


def test_only_the_first_characters_are_seen():
    field = TextField([Token("abcdef"), Token("ba")], {"c": indexer(max_characters_per_token=4)})
    vocab = Vocabulary.from_instances([Instance({"text": field})])
    assert set(vocab.get_token_to_index_vocabulary("token_characters")) >= {"a", "b", "c", "d"}
    assert "e" not in vocab.get_token_to_index_vocabulary("token_characters")
    field.index(vocab)
    ids = field.as_tensor(field.get_padding_lengths())["c"]["token_characters"].tolist()
    names = vocab.get_index_to_token_vocabulary("token_characters")
    assert ["".join(names[i] for i in row if i) for row in ids] == ["abcd", "ba"]
    assert len(ids[0]) == 4


def test_at_least_one_character_is_wanted():
    with pytest.raises(ConfigurationError, match="max_characters_per_token is 0"):
        indexer(max_characters_per_token=0)
