import functools

import torch
from allennlp.modules.highway import Highway as StockHighway

from elmo_plugin.bilm.kernels.reference import highway
from elmo_plugin.bilm.model.char_cnn import Highway


def test_highway_equals_allennlp_and_loads_its_weights():
    torch.manual_seed(4)
    ours, theirs = Highway(5, 3), StockHighway(5, 3, activation=torch.relu)
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(2, 3, 5)
    found = functools.reduce(lambda x, weights: highway(x, *weights), ours.weights, inputs)
    torch.testing.assert_close(found, theirs(inputs))
