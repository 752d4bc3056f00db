"""`truncated_normal`, `input_dropout` and `input_variational_dropout`."""

import pytest
import torch
from allennlp.common import Params
from allennlp.modules import Seq2SeqEncoder, Seq2VecEncoder
from allennlp.nn import Initializer

import elmo_plugin.plugin  # noqa: F401


def test_no_value_is_beyond_two_standard_deviations():
    initializer = Initializer.from_params(Params({"type": "truncated_normal", "std": 0.05}))
    weights = torch.empty(200, 200)
    initializer(weights)
    assert 0.099 < weights.abs().max() <= 0.1
    assert abs(weights.mean()) < 1e-3
    assert abs(weights.std() - 0.05 * 0.8796) < 1e-3  # of a normal cut at two


@pytest.mark.parametrize("name", ["input_dropout", "input_variational_dropout"])
def test_dropout_comes_before_the_encoder_and_in_training_only(name):
    variational = name == "input_variational_dropout"
    inner = {"type": "cnn", "embedding_dim": 40, "num_filters": 3, "ngram_filter_sizes": [2]}
    if variational:
        inner = {"type": "pass_through", "input_dim": 40}
    params = Params({"type": name, "dropout": 0.5, "encoder": inner})
    encoder = (Seq2SeqEncoder if variational else Seq2VecEncoder).from_params(params)
    seen = []
    encoder.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    inputs, mask = torch.ones(3, 7, 40), torch.ones(3, 7, dtype=torch.bool)
    assert encoder(inputs, mask).size(-1) == encoder.get_output_dim() == (40 if variational else 3)
    encoder.eval()(inputs, mask)
    assert encoder.get_input_dim() == 40
    dropped, whole = seen
    assert torch.equal(whole, inputs)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    # Variational dropout has one mask for all words of a sentence.
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped)) == variational
    assert not torch.equal(dropped[0], dropped[1])
