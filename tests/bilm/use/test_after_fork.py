"""A process that is forked after PyTorch's threads have started must not wait for them."""

import pytest

from tests.fresh_process import run
from tests.tiny_bilm import write

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
    child = run(FORKED, *write(tmp_path))
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.split() == ["True"]
