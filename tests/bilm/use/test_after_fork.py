"""A process that is forked after PyTorch's threads have started must not wait for them."""

import subprocess
import sys

import pytest

FORKED = """
import multiprocessing, sys
import torch
from elmo_plugin import ElmoEmbedder

torch.set_num_threads(2)
embedder = ElmoEmbedder(*sys.argv[1:])
sentences = [["The", "cat", "sat"]] * 64
torch.randn(700, 700) @ torch.randn(700, 700)
expected = embedder.embed_batch(sentences)

def work(queue):
    found = embedder.embed_batch(sentences)
    torch.randn(700, 700) @ torch.randn(700, 700)
    queue.put(all((one == two).all() for one, two in zip(found, expected)))

context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=work, args=(queue,), daemon=True)
process.start()
print(queue.get(timeout=400))
"""


@pytest.mark.slow
def test_an_embedder_works_after_a_fork(tmp_path):
    from tests.tiny_bilm import write

    child = subprocess.run(
        [sys.executable, "-c", FORKED, *write(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.split() == ["True"]
