import copy

import torch
from allennlp.common import Params
from allennlp.training.optimizers import Optimizer

import elmo_plugin.plugin  # noqa: F401


def trained(optimizer_type, network, steps=5):
    network = copy.deepcopy(network)
    groups = [[["bias"], {"weight_decay": 0.0}]]
    params = {"type": optimizer_type, "lr": 0.1, "weight_decay": 0.3, "parameter_groups": groups}
    optimizer = Optimizer.from_params(
        Params(params), model_parameters=list(network.named_parameters())
    )
    inputs = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimizer.zero_grad()
        network(inputs).square().sum().backward()
        optimizer.step()
    return network, optimizer


def test_steps_are_adamws_and_fused():
    torch.manual_seed(0)
    network = torch.nn.Linear(5, 3)
    (plain, _), (fused, optimizer) = (trained(one, network) for one in ("adamw", "fused_adamw"))
    for ours, theirs in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert not torch.allclose(ours, network.weight if ours.dim() == 2 else network.bias)
    assert all(group["fused"] for group in optimizer.param_groups)
    assert sorted(group["weight_decay"] for group in optimizer.param_groups) == [0.0, 0.3]
