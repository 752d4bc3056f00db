"""A process that is forked after PyTorch's threads have started must not wait for them."""

import re
from pathlib import Path

import pytest

from tests.fresh_process import run_core as run
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
print(queue.get())
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


# While another thread of the parent is in each cache, a child uses all of them.
INSIDE = """
import os, signal, sys, threading
from pathlib import Path
import torch
from elmo_plugin.bilm.files.blob_store import BlobStore
from elmo_plugin.bilm.kernels.token_cache import TokenCache
from elmo_plugin.bilm.use import layer_cache
from elmo_plugin.bilm.use.layer_cache import LayerCache
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.bilm import BiLm

begun, tokens = threading.Event(), TokenCache(1, 9)
ids = torch.ones(2, 3, dtype=torch.long)
stores = [BlobStore(Path(sys.argv[1]), 1 << 20), LayerCache("memory")._store]
digests = LayerCache("memory")

def slowly(steps):
    begun.set()
    yield from steps
    threading.Event().wait(0.2)

class Slow(dict):
    def items(self):
        return slowly(super().items())

def use_tokens(steps=list):
    vectors = tokens.vectors(ids, lambda rows: torch.tensor([[7.0] for _ in steps(rows)]))
    return vectors.tolist() == [[7.0]] * 2

def use_stores(kind=dict):
    for store in stores:
        store.put(kind({b"key": memoryview(b"value")}))
    return [store.get([b"key"]) for store in stores] == [{b"key": b"value"}] * 2

def use_digest(steps=list):
    layer_cache.weights_digest = lambda *_: bytes(steps([1]))
    return len(digests._keys(None, [b"a"])) == 1

building = []

class SlowBiLm(BiLm):
    def __init__(self, *arguments):
        building.append(1)
        super().__init__(*arguments)
        list(slowly([]))  # PyTorch's random generator has a lock too
        building.pop()

def use_loading(kind=BiLm):
    return load_bilm("embedded", bilm_class=kind) is not None and not building

for use, slow in (
    (use_tokens, slowly), (use_stores, Slow), (use_digest, slowly), (use_loading, SlowBiLm)
):
    begun.clear()
    other = threading.Thread(target=use, args=(slow,))
    other.start()
    begun.wait()
    if not (child := os.fork()):
        signal.alarm(100)
        os._exit(not use())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    other.join()
"""


def test_a_child_of_a_fork_finds_no_lock_held(tmp_path):
    child = run(INSIDE, tmp_path)
    assert child.stdout.split() == ["0"] * 4, child.stderr[-2000:]


# A thread that a fork waits for takes another lock, or makes one.
SECOND_LOCK = """
import os, threading
from elmo_plugin.bilm.kernels.fork_safe_lock import fork_safe_lock

locks = [fork_safe_lock() for _ in range(8)]

def take_others(held):
    with held:
        begun.set()
        threading.Event().wait(0.1)
        for one in locks:
            with one:
                pass
        fork_safe_lock()

for held in locks:
    begun = threading.Event()
    other = threading.Thread(target=take_others, args=(held,))
    other.start()
    begun.wait()
    if not (child := os.fork()):
        os._exit(not all(one.acquire(blocking=False) for one in locks))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    other.join()
"""


def test_a_fork_waits_for_a_thread_that_takes_more_locks():
    child = run(SECOND_LOCK)
    assert child.stdout.split() == ["0"] * 8, child.stderr[-2000:]


def test_every_lock_of_the_library_is_safe_after_a_fork():
    for path in (Path(__file__).parents[3] / "elmo_plugin").rglob("*.py"):
        plain = re.search(r"\b(threading\.)?(Lock|Condition|Semaphore)\(", path.read_text())
        assert path.stem == "fork_safe_lock" or plain is None, path


def test_a_forked_process_has_one_thread(tmp_path):
    child = run(ONE_THREAD, *write(tmp_path))
    assert child.stdout.splitlines() == ["10 2"] * 3, child.stderr[-2000:]


@pytest.mark.slow
def test_an_embedder_works_after_a_fork(tmp_path):
    child = run(FORKED, *write(tmp_path))
    assert child.stdout.split() == ["True"]
