"""`truncated_normal` and `input_dropout`."""

import torch
from allennlp.common import Params
from allennlp.modules import Seq2VecEncoder
from allennlp.nn import Initializer

import elmo_plugin.plugin  # noqa: F401


def test_no_value_is_beyond_two_standard_deviations():
    initializer = Initializer.from_params(Params({"type": "truncated_normal", "std": 0.05}))
    weights = torch.empty(200, 200)
    initializer(weights)
    assert 0.099 < weights.abs().max() <= 0.1
    assert abs(weights.mean()) < 1e-3
    assert abs(weights.std() - 0.05 * 0.8796) < 1e-3  # of a normal cut at two


def test_dropout_comes_before_the_encoder_and_in_training_only():
    params = {"type": "input_dropout", "dropout": 0.5}
    cnn = {"type": "cnn", "embedding_dim": 4, "num_filters": 3, "ngram_filter_sizes": [2]}
    encoder = Seq2VecEncoder.from_params(Params({**params, "encoder": cnn}))
    seen = []
    encoder.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    inputs, mask = torch.ones(5, 6, 4), torch.ones(5, 6, dtype=torch.bool)
    assert encoder(inputs, mask).shape == (5, encoder.get_output_dim()) == (5, 3)
    encoder.eval()(inputs, mask)
    assert encoder.get_input_dim() == 4
    dropped, whole = seen
    assert torch.equal(whole, inputs)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
