import torch
from allennlp.modules.highway import Highway as StockHighway

from elmo_plugin.bilm.model.highway import Highway


def test_highway_equals_allennlp_and_loads_its_weights():
    torch.manual_seed(4)
    ours, theirs = Highway(5, 3), StockHighway(5, 3, activation=torch.relu)
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(2, 3, 5)
    torch.testing.assert_close(ours(inputs), theirs(inputs))
