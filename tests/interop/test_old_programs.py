"""
seqvec, flair's ELMoEmbeddings and supar's ELMoEmbedding as they come from the registry, on local
weights, give `ElmoEmbedder`'s vectors: where AllenNLP 2.10.1 is installed, and where it is not.
"""

import functools

import h5py
import numpy
import pytest

from elmo_plugin import ElmoEmbedder
from tests import fresh_process
from tests.test_as_allennlp import RUN, WITHOUT
from tests.tiny_bilm import write

pytestmark = pytest.mark.interop

PROTEINS = {"P1": "SEQWENCE", "P2": "PRTEIN", "P3": "SEQ"}
FLAIR = """
import pickle, sys
import numpy, torch
from flair.data import Sentence
from flair.embeddings.legacy import ELMoEmbeddings

options, weights, output = sys.argv[1:]
embeddings = ELMoEmbeddings(options_file=options, weight_file=weights)
found = []
for again in range(2):
    for text in ("The cat sat .", "Dogs bark at the moon ."):
        sentence = Sentence(text.split())
        embeddings.embed(sentence)
        found.append(torch.stack([token.embedding for token in sentence]).numpy())
    embeddings = pickle.loads(pickle.dumps(embeddings))
assert embeddings.embedding_length == found[0].shape[1]
numpy.savez(output, *found)
"""
SUPAR = """
import sys
import numpy
from supar.modules.pretrained import ELMoEmbedding

options, weights, output = sys.argv[1:]
ELMoEmbedding.OPTION["small"], ELMoEmbedding.WEIGHT["small"] = options, weights
embedding = ELMoEmbedding("small", bos_eos=(False, False), n_out=12, dropout=0.0)
from allennlp.modules.elmo import batch_to_ids
found = embedding(batch_to_ids([["The", "cat", "sat"]])).detach().numpy()
numpy.savez(output, *found)
"""


@pytest.fixture(params=[True, False], ids=["beside AllenNLP 2", "without AllenNLP"])
def run(request, tmp_path):
    """Runs a program as `python -m elmo_plugin run`."""
    program = RUN if request.param else WITHOUT + RUN
    return functools.partial(fresh_process.run, program, folder=tmp_path, HOME=str(tmp_path))


@pytest.mark.parametrize("state", ["carry", "primed"])
def test_seqvec(run, state, files, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    write(model)
    fasta = "".join(f">sp|{name}|x\n{sequence}\n" for name, sequence in PROTEINS.items())
    (tmp_path / "proteins.fasta").write_text(fasta)
    seqvec = ["-m", "seqvec.seqvec", "-i", "proteins.fasta", "-o", "out.h5", "--model", model]
    child = run("--state", state, *seqvec, "--cpu", "--layer", "all", "--batchsize", 10)
    assert f"ElmoEmbedder with state '{state}'" in child.stderr
    embedder = ElmoEmbedder(*files, state=state)
    # By length, a batch until one has more than 5 residues, as it does it.
    expected = {}
    for batch in (["P3", "P2"], ["P1"]):
        vectors = embedder.embed_batch([list(PROTEINS[name]) for name in batch])
        expected.update(zip(batch, vectors, strict=True))
    with h5py.File(tmp_path / "out.h5") as file:
        assert set(file) == set(PROTEINS)
        for name, vectors in expected.items():
            numpy.testing.assert_allclose(
                file[name][...], numpy.concatenate(vectors, axis=1), atol=1e-6
            )


@pytest.mark.parametrize("state", ["carry", "primed"])
def test_flair(run, state, files, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(FLAIR)
    run("--state", state, script, *files, tmp_path / "out.npz")
    embedder = ElmoEmbedder(*files, state=state)
    embedder.embed_batch([["hello"]])  # by which it learns the width
    stored = numpy.load(tmp_path / "out.npz")
    found = [stored[name] for name in stored.files]
    sentences = [["The", "cat", "sat", "."], ["Dogs", "bark", "at", "the", "moon", "."]] * 2
    for one, sentence in zip(found, sentences, strict=True):
        expected = numpy.concatenate(embedder.embed_batch([sentence])[0], axis=1)
        numpy.testing.assert_allclose(one, expected, atol=1e-6)


def test_supar(run, files, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(SUPAR)
    run(script, *files, tmp_path / "out.npz")
    expected = ElmoEmbedder(*files, state="carry").embed_sentence(["The", "cat", "sat"])
    found = numpy.load(tmp_path / "out.npz")["arr_0"]
    numpy.testing.assert_allclose(found, expected.mean(axis=0), atol=1e-6)
