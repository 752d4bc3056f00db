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


# The exit status is ten times the child's number of threads.
ONE_THREAD = """
import os, sys
import torch
from elmo_plugin import load_bilm

torch.set_num_threads(2)
bilm = load_bilm(*sys.argv[1:])
ids = bilm.batch_to_ids([["a"]])
for work in (lambda: bilm.check(ids), lambda: bilm.batch_to_ids([["a"]]),
             lambda: bilm.start_states([0])):
    if not (child := os.fork()):
        work()
        os._exit(10 * torch.get_num_threads())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.get_num_threads())
"""


def test_a_forked_process_has_one_thread(tmp_path):
    child = run(ONE_THREAD, *write(tmp_path))
    assert child.stdout.splitlines() == ["10 2"] * 3, child.stderr[-2000:]


@pytest.mark.slow
def test_an_embedder_works_after_a_fork(tmp_path):
    child = run(FORKED, *write(tmp_path))
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.split() == ["True"]
