import copy
import math

import pytest
import torch

from elmo_plugin.bilm.pretraining.optimization import (
    WarmupCosine,
    check_schedule,
    check_takes_sparse,
    make_optimizer,
)


@pytest.mark.parametrize(
    ("num_steps", "arguments", "rates"),
    [
        # It rises linearly, and falls along half a cosine.
        (100, {}, {1: 0.1, 10: 1, 20: 2, 60: 1.01, 100: 0.02}),
        # It stays for the constant steps.
        (
            100,
            {"constant_steps": 40, "final_fraction": 0.0},
            {10: 1, 20: 2, 40: 2, 60: 2, 70: 1 + math.cos(math.pi / 4), 80: 1, 100: 0},
        ),
        # A run that goes on may be longer or shorter than it was begun.
        (200, {"constant_steps": 170}, {61: 2, 190: 2}),
        (100, {"constant_steps": 30}, {75: 1.01, 100: 0.02}),
    ],
)
def test_rates_of_the_schedule(num_steps, arguments, rates):
    schedule = WarmupCosine(warmup_steps=20, **arguments)
    found = {step: 2.0 * schedule.factor(step, num_steps) for step in rates}
    assert found == pytest.approx(rates, abs=1e-12)


def test_no_steps_left_for_the_cosine_is_refused():
    with pytest.raises(ValueError, match=r"20 warmup_steps and 80 constant.* has 100 steps"):
        check_schedule(WarmupCosine(20, 80), 0, 100)


def trained(optimizer_type, network, steps=5):
    network = copy.deepcopy(network)
    groups = [[["bias"], {"weight_decay": 0.0}]]
    settings = {"type": optimizer_type, "lr": 0.1, "weight_decay": 0.3, "parameter_groups": groups}
    optimizer = make_optimizer(network.named_parameters(), settings)
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "adamax"}, "optimizer.type is 'adamax', expected one of"),
        ({"type": []}, r"optimizer.type is \[\], expected one of"),
        ({"type": "sgd", "speed": 1}, "optimizer sgd: .*'speed'"),
        ({"type": "adam", "betas": [0.9]}, "optimizer adam: "),
        (
            {"type": "sgd", "parameter_groups": [[["bias("], {}]]},
            r"parameter_groups has \['bias\('\], expected regular expressions",
        ),
        (
            {"type": "sgd", "parameter_groups": [[["biass"], {}]]},
            r"parameter_groups has \['biass'\], expected a match in the name of a parameter",
        ),
        (
            {"type": "sgd", "parameter_groups": [[["bias"], {}], [["bias"], {}]]},
            "that no earlier group has taken",
        ),
        (
            {"type": "sgd", "parameter_groups": [["bias", {"lr": 1.0}]]},
            r"parameter_groups has \['bias', .*expected a list of regular expressions",
        ),
        (
            {"type": "sgd", "parameter_groups": [[["bias"], {"requires_grad": False}]]},
            "optimizer sgd: .*'requires_grad'",
        ),
        ({"type": "sgd", "parameter_groups": 5}, "parameter_groups is 5, expected a list"),
        (
            {"type": "adagrad", "parameter_groups": [[["bias"], {"lr": -1}]]},
            "optimizer adagrad: Invalid learning rate: -1",
        ),
        ({"type": "adamw", "fused": True, "foreach": True}, "optimizer adamw: "),
    ],
)
def test_what_is_no_optimizer_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(torch.nn.Linear(2, 2).named_parameters(), settings)


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"type": "adagrad"}, True),
        ({"type": "sgd", "momentum": 0.9}, True),
        ({"type": "adam"}, False),
        ({"type": "fused_adamw"}, False),
        ({"type": "adagrad", "weight_decay": 0.1}, False),
        ({"type": "sgd", "weight_decay": 0.1}, False),
    ],
)
def test_what_takes_sparse_gradients_is_what_makes_a_step_with_them(settings, fits):
    parameter = torch.nn.Parameter(torch.ones(4, 2))
    optimizer = make_optimizer([("softmax.weight", parameter)], {"lr": 0.1, **settings})
    parameter.grad = torch.sparse_coo_tensor([[1]], [[1.0, 1.0]], (4, 2))
    if fits:
        check_takes_sparse(optimizer)
        optimizer.step()
        return
    with pytest.raises(ValueError, match=r"model\.softmax\.sparse with .*, expected adagrad"):
        check_takes_sparse(optimizer)
    with pytest.raises(RuntimeError, match="spars"):
        optimizer.step()
