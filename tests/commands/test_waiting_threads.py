"""Threads of PyTorch that wait sleep soon, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
if len(sys.argv) > 1:
    import torch
import elmo_plugin
print("torch" in sys.modules, os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        ([], {}, "False 1000"),
        ([], {"GOMP_SPINCOUNT": "7"}, "False 7"),
        ([], {"OMP_WAIT_POLICY": "active"}, "False None"),
        (["torch first"], {}, "True None"),
    ],
)
def test_they_spin_briefly_before_torch_is_loaded(arguments, given, expected):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    child = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        capture_output=True,
        text=True,
        env={**environment, **given},
    )
    assert child.stdout.strip() == expected, child.stderr
