"""The yardstick by hand."""

import itertools

import pytest

from benchmarks.limit import ITEM_BYTES, Machine, both, lstm_work, token_work
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.model.options import ElmoOptions

OPTIONS = ElmoOptions(2, 3, 2, 4, ((1, 5), (2, 6)), 1)


def test_the_work_by_hand():
    work = lstm_work(OPTIONS, [4, 2])
    # Input and state weights 12 x 2 each, projection 2 x 3; two layers, two directions.
    assert work.flops == 2 * 4 * 6 * (24 + 24 + 6)
    assert work.step_flops == 2 * 4 * 6 * (24 + 6)
    assert work.step_elements == 24 + 6
    assert work.step_reads == 4 * 4
    assert work.other_elements == 4 * 24
    tokens = token_work(OPTIONS, ["ab", "c", "ab"])
    # Four places and three; filters 1 x 4 x 5, 2 x 4 x 6; a highway 22 x 11, a projection 11 x 2.
    assert tokens.flops == 2 * (7 * (20 + 48) + 2 * (242 + 22))
    assert both(work, tokens).flops == work.flops + tokens.flops
    assert both(work, tokens).step_flops == work.step_flops
    assert both(work, tokens).step_reads == 16


def test_the_larger_time_is_the_limit(monkeypatch):
    machine = Machine(lambda: 0.0)
    machine.gflops = {"float32": {"one": 1e-9, "other": 2e-9}, "int8": {"one": 8e-9}}
    monkeypatch.setattr(machine, "reading_seconds", lambda num_bytes, times: float(times))
    work = lstm_work(OPTIONS, [4, 2])
    exact, int8 = machine.limit(work, "float32"), machine.limit(work, "int8")
    assert exact["multiplying"] == work.flops / 2
    assert int8["multiplying"] == work.flops / 8
    # As often as there are steps, and the input weights once.
    assert exact["reading"] == pytest.approx(16 + 96 / 30)
    assert exact["limit"] == exact["in_turn"] == exact["multiplying"]
    # Of 2,592 products 1,440 are the steps'; reading takes longer than these.
    assert int8["limit"] == int8["multiplying"] == 2592 / 8
    machine.gflops["int8"] = {"one": 100e-9}
    quick = machine.limit(work, "int8")
    assert quick["multiplying"] == pytest.approx(25.92)
    assert quick["in_turn"] == pytest.approx(25.92 - 14.4 + quick["reading"])


def test_rates_are_of_this_machine_and_of_now():
    # A second by this clock, whatever is read; from then on two.
    ticks = itertools.count()
    machine = Machine(lambda: next(ticks))
    assert machine.reading_seconds(4_000_000, 50) == 1
    machine._clock = lambda: 2 * next(ticks)
    assert machine.reading_seconds(4_000_000, 50) == 2
    assert machine.gigabytes == {4_000_000: pytest.approx((0.15, 0.1, 0.2))}


def test_steps_from_a_cores_own_cache_are_as_many_as_were_timed():
    ticks = itertools.count()
    found = Machine(lambda: next(ticks)).own_cache_rates()
    # A second for all steps, each of 0.7 MB.
    assert all(rate == pytest.approx(200 * 655_360e-9) for rate in found.values())
    assert set(found) | {"bfloat16"} == set(ITEM_BYTES) or library.variant() is None
