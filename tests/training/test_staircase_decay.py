import pytest
import torch

from elmo_plugin.training.staircase_decay import StaircaseDecay


def rates(scheduler, optimizer, steps):
    found = []
    for step in steps:
        scheduler.step_batch(step)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def scheduler_of(**arguments):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    return StaircaseDecay(optimizer, **arguments), optimizer


def test_the_rate_of_each_step():
    scheduler, optimizer = scheduler_of()
    found = rates(scheduler, optimizer, range(1, 302))
    assert found == pytest.approx([0.5] * 100 + [0.4995] * 100 + [0.4990005] * 100 + [0.4985014995])
    scheduler.step(0.0)
    assert optimizer.param_groups[0]["lr"] == found[-1]


def test_after_recovery_it_goes_on():
    scheduler, optimizer = scheduler_of(decay_rate=0.5, decay_steps=2)
    expected = rates(scheduler, optimizer, range(1, 8))
    first, first_optimizer = scheduler_of(decay_rate=0.5, decay_steps=2)
    rates(first, first_optimizer, range(1, 4))
    second, second_optimizer = scheduler_of(decay_rate=0.5, decay_steps=2)
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert rates(second, second_optimizer, [None] * 4) == expected[3:]
    assert expected == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625]
