import math

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.training.warmup_cosine import WarmupCosine


def scheduler(num_epochs=10, **arguments):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    return WarmupCosine(
        optimizer, num_epochs=num_epochs, num_steps_per_epoch=10, warmup_steps=20, **arguments
    )


def rates(schedule, steps):
    found = []
    for step in steps:
        schedule.step_batch(step)
        found.append(schedule.optimizer.param_groups[0]["lr"])
    return found


def test_rises_linearly_and_falls_along_half_a_cosine():
    schedule = scheduler()
    half = 0.01 + 0.99 * 0.5
    assert rates(schedule, [1, 10, 20, 60, 100]) == pytest.approx([0.1, 1, 2, 2 * half, 0.02])


def test_stays_at_the_full_rate_for_the_constant_steps():
    schedule = scheduler(constant_steps=40, final_fraction=0.0)
    quarter = 0.5 * (1 + math.cos(math.pi / 4))
    expected = [1, 2, 2, 2, 2 * quarter, 1, 0]
    assert rates(schedule, [10, 20, 40, 60, 70, 80, 100]) == pytest.approx(expected, abs=1e-12)


def test_a_run_that_goes_on_may_be_longer_or_shorter_than_it_was_begun():
    begun = scheduler(constant_steps=70)
    begun.step_batch(60)
    longer, falling = scheduler(num_epochs=20, constant_steps=170), scheduler(constant_steps=30)
    for schedule in (longer, falling):
        schedule.load_state_dict(begun.state_dict())
        assert schedule.last_epoch == 60
    assert rates(longer, [61, 190]) == [2, 2]
    assert rates(falling, [75, 100]) == pytest.approx([2 * (0.01 + 0.99 * 0.5), 0.02])


def test_a_checkpoint_from_before_there_were_constant_steps_is_read():
    schedule = scheduler()
    schedule.load_state_dict({"last_epoch": 20, "total_steps": 7, "base_values": [9.0]})
    assert rates(schedule, [60]) == pytest.approx([2 * (0.01 + 0.99 * 0.5)])


def test_no_steps_left_for_the_cosine_is_refused():
    with pytest.raises(ConfigurationError, match="expected fewer together than the 100 steps"):
        scheduler(constant_steps=80)
