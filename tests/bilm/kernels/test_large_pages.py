import gc
import mmap
import re
from pathlib import Path

import pytest
import torch

from elmo_plugin.bilm.kernels.compiled import on_large_pages


def asks_for_large_pages(tensor):
    """Whether the kernel was told so of the memory in which it lies."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            start, end = (int(bound, 16) for bound in bounds.groups())
            inside = start <= tensor.data_ptr() < end
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("it lies nowhere")


@pytest.mark.parametrize("shape", [(3, 5), (600, 2048)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bfloat16])
def test_tensors_on_large_pages(shape, dtype):
    tensor = on_large_pages(shape, dtype)
    gc.collect()
    assert (tensor.shape, tensor.dtype) == (shape, dtype)
    assert not tensor.any()
    tensor += 1
    assert tensor.sum(dtype=torch.float64) == shape[0] * shape[1]


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="needs Linux with large pages"
)
def test_what_is_large_asks_for_large_pages():
    assert asks_for_large_pages(on_large_pages((600, 2048), torch.float32))
    assert not asks_for_large_pages(on_large_pages((3, 5), torch.float32))


def test_where_there_are_none(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert torch.equal(on_large_pages((600, 2048), torch.float32), torch.zeros(600, 2048))
