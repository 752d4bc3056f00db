"""Real processes that are killed, stopped and short of disk; see `faults.py` for more of them."""

import importlib.util
import random
import sys

import pytest

from tests.bilm.corpus.faults import FAULTS, RAY, Corpus, digests, run_with_faults, wait_for_parts

pytest.importorskip("pyarrow", reason="Parquet is written by pyarrow, which is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("faults"),  # they share `corpus`
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed (make test-ray)"
)
CASES = [
    pytest.param(engine, fault, marks=[needs_ray] if engine == "ray" else [])
    for engine, faults in FAULTS.items()
    for fault in faults
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("corpus"), lines=1000)


@pytest.mark.parametrize(("engine", "fault"), CASES)
def test_after_a_fault_the_same_command_gives_the_same_bytes(corpus, engine, fault):
    generator = random.Random(f"{engine} {fault}")
    done, said = run_with_faults(corpus, engine, [fault], f"{engine}-{fault}", generator)
    print(said)
    assert done == 1


@needs_ray
def test_two_raylets_lose_one_and_finish(corpus, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(corpus.package))
    for name, value in RAY.items():
        monkeypatch.setenv(name, value)
    node = {"num_cpus": 1, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        other = cluster.add_node(**node)
        driver = corpus.start("ray", "two", cluster.address)
        wait_for_parts(corpus.folder / "two", 4, driver)
        assert driver.poll() is None
        cluster.remove_node(other, allow_graceful=False)
        assert corpus.end(driver, "two") == 0, corpus.log("two")
    finally:
        cluster.shutdown()
    assert digests(corpus.folder / "two") == corpus.expected
    assert "try 1 of 3" in corpus.log("two")
