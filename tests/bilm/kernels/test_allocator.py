import ctypes

import pytest

from elmo_plugin.bilm.kernels.machine import keep_freed_memory
from tests.fresh_process import run_core as run

COUNT_PAGES = """
import ctypes, resource, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no large pages, which some systems give to all
import torch
from elmo_plugin.bilm.kernels import machine

which, count = sys.argv[1], int(sys.argv[2])
if which == "give_back":  # by default, it depends on small pieces beside the large ones
    ctypes.pythonapi.mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD
else:
    getattr(machine, which)()

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = 0
for step in range(40):
    if step == 30:  # small pieces have found their places
        before = pages()
    # Of 64 MB: more than glibc ever keeps of itself; or several of 28 MB.
    tensors = [torch.ones((16 if count == 1 else 7) << 20) for _ in range(count)]
    del tensors
print(pages() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "mallopt"), reason="needs glibc")
@pytest.mark.parametrize(("which", "count"), [("keep_freed_memory", 1), ("reuse_freed_memory", 4)])
def test_no_page_comes_twice(which, count):
    kept, given_back = (
        int(run(COUNT_PAGES, one, str(count)).stdout) for one in (which, "give_back")
    )
    assert given_back > 10 * 1000  # of 16,384 pages of 4 KB each time, or 1,024 of 64 KB
    assert kept < 1000


def test_without_glibc(monkeypatch):
    monkeypatch.setattr(ctypes, "pythonapi", object())
    keep_freed_memory()
