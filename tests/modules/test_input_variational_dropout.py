import torch
from allennlp.common import Params
from allennlp.modules import Seq2SeqEncoder

import elmo_plugin.plugin  # noqa: F401


def test_one_mask_for_all_words_and_none_in_evaluation():
    inner = {"type": "pass_through", "input_dim": 40}
    params = {"type": "input_variational_dropout", "dropout": 0.5, "encoder": inner}
    encoder = Seq2SeqEncoder.from_params(Params(params)).train()
    inputs = torch.ones(3, 7, 40)
    found = encoder(inputs)
    assert torch.equal(found, found[:, :1].expand_as(found))
    assert set(found.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(found[0], found[1])
    assert torch.equal(encoder.eval()(inputs), inputs)
    assert (encoder.get_input_dim(), encoder.get_output_dim()) == (40, 40)
