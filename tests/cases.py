"""Parametrizes a test: a few cases always run, the others run with the slow tests."""

import pytest


def first_quick(names, cases, count=1, **more):
    """
    Like `pytest.mark.parametrize`, which gets `more`, but every case after the first `count` has
    the mark `slow`. These are further cases of the same behaviour.
    """
    values = [
        pytest.param(
            *((case,) if isinstance(names, str) else case),
            marks=[pytest.mark.slow] * (number >= count),
        )
        for number, case in enumerate(cases)
    ]
    return pytest.mark.parametrize(names, values, **more)
