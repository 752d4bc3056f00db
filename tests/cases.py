"""Cases of a test: some are quick, the others belong to the slow tests."""

import pytest


def first_quick(names, cases, count=1, **more):
    """
    `pytest.mark.parametrize`, where the first `count` cases are quick. The others, further cases of
    the same behaviour, are slow.
    """
    values = [
        pytest.param(
            *((case,) if isinstance(names, str) else case),
            marks=[pytest.mark.slow] * (number >= count),
        )
        for number, case in enumerate(cases)
    ]
    return pytest.mark.parametrize(names, values, **more)
