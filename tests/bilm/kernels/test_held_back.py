"""Kernels and libraries that are told to use less than the processor has: numbers stay exact."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPARE = """
import torch
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.model.characters import batch_to_ids

sentences = [["One", "sentence", "."], ["And", "another", "one", ",", "longer", "."], ["Three"]]
ids = batch_to_ids(sentences)
exact = load_bilm("embedded", state="reset").requires_grad_(False)
with torch.no_grad():
    with use_backend("reference"):
        expected = exact(ids)["activations"]
    for dtype in (None, "float16", "bfloat16", "int8"):
        bilm = load_bilm("embedded", state="reset", dtype=dtype).requires_grad_(False)
        found = bilm(ids)["activations"]
        for ours, theirs in zip(found, expected):
            if dtype == "int8" or (dtype == "bfloat16" and library.variant()):
                cosine = torch.cosine_similarity(ours, theirs, dim=-1)[theirs.abs().sum(-1) > 0]
                assert cosine.min() > (0.995 if dtype == "int8" else 0.999), (dtype, cosine.min())
            else:
                scale = float(theirs.abs().max())
                deviation = float((ours - theirs).abs().max())
                assert deviation <= 1e-6 * max(1.0, scale), (dtype, deviation)
        for row, sentence in enumerate(sentences if library.variant() else ()):
            bilm.char_cnn.forget_token_vectors()
            alone = bilm(batch_to_ids([sentence]))["activations"]
            for one, together in zip(alone, found):
                assert torch.equal(one[0], together[row, : len(sentence) + 2]), (dtype, row)
print("exact")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ELMO_PLUGIN_ISA", "x86-64-v3"),
        ("ELMO_PLUGIN_ISA", "none"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2"),
        ("ATEN_CPU_CAPABILITY", "default"),
        ("ATEN_CPU_CAPABILITY", "avx2"),
    ],
)
def test_numbers_stay_exact(variable, value):
    environment = {**os.environ, variable: value}
    found = subprocess.run(
        [sys.executable, "-c", COMPARE], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["exact"]
