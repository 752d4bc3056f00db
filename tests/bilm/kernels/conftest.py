"""Kernels in C++ that are compiled anew."""

import pytest

from elmo_plugin.bilm.kernels import compiled, lstm_compiled, lstm_fused


@pytest.fixture
def uncompiled(monkeypatch, tmp_path):
    """Nothing is loaded or tried, and the cache is empty: the folder that is returned."""
    if compiled.compiler() is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached = compiled._library, compiled._function, lstm_compiled.works, lstm_fused.works
    for function in cached:
        function.cache_clear()
    yield tmp_path
    for function in cached:
        function.cache_clear()


@pytest.fixture
def written_wrong(uncompiled, monkeypatch):
    """Puts one text in place of another in the sources that are compiled."""

    def write(text, wrong):
        folder = uncompiled / "sources"
        folder.mkdir()
        found = False
        for path in (*compiled.FOLDER.glob("*.cpp"), *compiled.FOLDER.glob("*.h")):
            source = path.read_text()
            found = found or text in source
            (folder / path.name).write_text(source.replace(text, wrong))
        assert found
        monkeypatch.setattr(compiled, "FOLDER", folder)
        # Wrong without being optimised, too, and compiled in a quarter of the time.
        flags = tuple("-O0" if flag == "-O3" else flag for flag in compiled.FLAGS)
        monkeypatch.setattr(compiled, "FLAGS", flags)

    return write
