"""What is ESIM's and BCN's own, and what they predict."""

import torch

from elmo_plugin.predictors.textual_entailment import TextualEntailmentPredictor  # noqa: F401
from tests.models.tasks import bcn, build, esim, instances, tensors


def test_esim_attention_dropout_reaches_the_projection_in_training_only():
    params = esim(dropout=0.0, attention_dropout=0.5)
    model = build(params)
    seen = []
    model._projection_feedforward.register_forward_hook(lambda m, inputs, o: seen.append(inputs[0]))
    batch = tensors(model, instances(params))
    model(**batch)
    model.train()(**batch)
    whole, dropped = seen[0], seen[2]
    gone = dropped == 0
    assert 0.3 < gone.float().mean() < 0.7
    torch.testing.assert_close(dropped[~gone], 2 * whole[~gone])


def test_bcn_pools_by_hand():
    model = build(bcn())
    projection = model._self_attentive_pooling_projection
    projection.weight.data.copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    projection.bias.data.zero_()
    first, second = [0.0, -2.0, 1.0, 5.0], [0.0, 4.0, 1.0, -5.0]
    padding = [9.0, 9.0, -9.0, 99.0]
    pooled = model._pool(
        torch.tensor([[first, second, padding]]), torch.tensor([[True, True, False]])
    )
    maximum, minimum = [0.0, 4.0, 1.0, 5.0], [0.0, -2.0, 1.0, -5.0]
    mean = [0.0, 1.0, 1.0, 0.0]
    torch.testing.assert_close(pooled, torch.tensor([maximum + minimum + mean + mean]))
