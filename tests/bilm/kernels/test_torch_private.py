"""Private names of PyTorch: in one file, and a version without one of them runs."""

import importlib
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

import elmo_plugin
from elmo_plugin.bilm.kernels import torch_private
from elmo_plugin.bilm.kernels.plain import depends_on_parameters_alone
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.fresh_process import run_core
from tests.tiny_bilm import BATCHES, random_bilm

IDS = batch_to_ids(BATCHES[0])
REMOVED = [
    (torch._C, "_are_functorch_transforms_active", True),
    (torch._C, "_current_graph_task_id", True),
    (forward_ad, "_current_level", True),
    (torch._C, "_functorch", True),
    (torch._C, "_has_storage", True),
    (torch._C, "_len_torch_function_stack", True),
    (torch._C, "_len_torch_dispatch_stack", True),
    (torch.overrides, "_get_current_function_mode_stack", True),
    (torch_module, "_has_any_global_hook", True),
    (torch.Tensor, "_version", False),
    (torch.nn.Module, "_backward_pre_hooks", True),
]


@pytest.fixture
def reload():
    """Look names up again, and once more after the test."""
    yield lambda: importlib.reload(torch_private)
    vars(torch_private).pop("hasattr", None)
    importlib.reload(torch_private)


@pytest.mark.parametrize(("owner", "name", "is_said"), REMOVED, ids=[one[1] for one in REMOVED])
def test_a_sentence_runs_without_it(owner, name, is_said, reload, monkeypatch):
    expected = random_bilm()(IDS)["activations"]

    # PyTorch itself uses these names, or keeps them in C types: they are hidden, not removed.
    monkeypatch.setattr(
        torch_private, "hasattr", lambda *one: one[1] != name and hasattr(*one), raising=False
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        reload()
    assert [name in str(one.message) for one in said] == [True] * is_said
    bilm = random_bilm()
    for trains in (True, False):
        for _ in range(2):
            bilm.requires_grad_(trains).reset_states()
            for ours, theirs in zip(bilm(IDS)["activations"], expected, strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    with torch.no_grad():  # a change is still noticed
        bilm.lstm.forward_layer_0.input_linearity.weight[0, 0] += 5.0
        bilm.reset_states()
        changed = bilm(IDS)["activations"][1]
        assert not torch.allclose(changed, expected[1], atol=1e-3)
    if owner in (torch_module, torch.nn.Module):
        assert not depends_on_parameters_alone(bilm)


LACKS = """
import torch

class Missing:
    def __get__(self, *_):
        raise AttributeError

torch.Tensor.rename = torch.Tensor.refine_names = Missing()
import elmo_plugin.bilm.kernels.derived
"""


def test_methods_that_a_version_lacks_are_not_watched():
    """PyTorch 2.14 has no names of dimensions."""
    run_core(LACKS)


def test_scan_without_pytorchs_is_a_loop(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._higher_order_ops.scan", None)
    sums, outputs = torch_private.scan(
        lambda carry, now: ((carry[0] + now[0],), 2 * now[0]),
        (torch.zeros(3),),
        (torch.ones(4, 3),),
    )
    assert sums[0].tolist() == [4.0] * 3
    assert outputs.equal(torch.full((4, 3), 2.0))


def test_private_names_are_in_one_file():
    package = Path(elmo_plugin.__file__).parent
    private = re.compile(r"\b(torch(\.\w+)*|forward_ad|torch_module|tensor|one)\._[a-z]\w+")
    found = {
        (path.name, match[0])
        for path in package.rglob("*.py")
        if path.name not in ("torch_private.py", "compat.py")
        for match in private.finditer(path.read_text(encoding="utf-8"))
    }
    # PyTorch documents this one, for programs to use.
    assert found <= {("probe.py", "torch.utils._python_dispatch")}
