import ctypes
import gc
import mmap
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from elmo_plugin.bilm.kernels import tuning
from elmo_plugin.bilm.kernels.allocator import keep_freed_memory, on_large_pages

COUNT_PAGES = """
import resource, sys
import torch
from elmo_plugin.bilm.kernels.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = 0
for step in range(20):
    if step == 10:  # small pieces have found their places
        before = pages()
    torch.ones(16 << 20)  # 64 MB, more than glibc ever keeps of itself
print(pages() - before)
"""


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


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "mallopt"), reason="needs glibc")
def test_no_page_comes_twice():
    kept, given_back = (
        int(subprocess.check_output([sys.executable, "-c", COUNT_PAGES, which]))
        for which in ("keep", "give back")
    )
    assert given_back > 10 * 1000  # of 16,384 pages of 4 KB each time; huge ones are fewer
    assert kept < 1000


NUMBERS = "INPUT_PRODUCT_ELEMENTS", "TOKENS_AT_ONCE"


@pytest.fixture
def numbers(monkeypatch):
    """Restored at the end."""
    for name in NUMBERS:
        monkeypatch.setattr(tuning, name, 7)
    return lambda: [getattr(tuning, name) for name in NUMBERS]


def test_products_of_more_rows(numbers, monkeypatch):
    monkeypatch.setattr(ctypes, "pythonapi", SimpleNamespace(mallopt=lambda *_: 1))
    keep_freed_memory()
    assert numbers() == [tuning.INPUT_PRODUCT_ELEMENTS_KEPT, tuning.TOKENS_AT_ONCE_KEPT]


def test_without_glibc(numbers, monkeypatch):
    monkeypatch.setattr(ctypes, "pythonapi", object())
    keep_freed_memory()
    assert numbers() == [7, 7]
