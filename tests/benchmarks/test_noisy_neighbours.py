import pytest

from benchmarks import noisy_neighbours, workload
from elmo_plugin.bilm.model.options import ElmoOptions


@pytest.mark.slow
def test_a_candidate_is_measured_quiet_and_beside_busy_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(noisy_neighbours, "CANDIDATES", ("float32",))  # the quick one to import
    monkeypatch.setattr(workload, "SHAPES", {"tiny": ElmoOptions(8, 16, 2, 4, ((1, 4), (2, 6)), 1)})
    found = noisy_neighbours.run(workload.write_weights("tiny", tmp_path), threads=1, runs=2)
    assert list(found) == ["quiet", "one busy process", "one a core"]
    for one in found.values():
        assert list(one) == ["float32"]
        assert all(0 < times["median"] <= times["worst"] for times in one.values())
    header, *cells = noisy_neighbours.rows(found)
    assert header[1] == "float32, median (worst), s"
    assert [row[0] for row in cells] == list(found)
