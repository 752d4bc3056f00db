"""What is written, against AllenNLP's own layers, in carry."""

import h5py
import numpy
import pytest
import torch
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries

from elmo_plugin.__main__ import main
from tests.tiny_bilm import BATCHES

TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.mark.parametrize("layers", ["all", "top", "average"])
@pytest.mark.parametrize("max_tokens", ["9", "4096"])
def test_the_command_writes_allennlp_s_layers(tmp_path, files, layers, max_tokens):
    sentences = [sentence for batch in BATCHES for sentence in batch]
    (tmp_path / "in").write_text("\n".join(map(" ".join, sentences)))
    arguments = [str(tmp_path / "in"), str(tmp_path / "out"), f"--{layers}", "--state", "carry"]
    arguments += ["--batch-size", "4", "--max-tokens", max_tokens]
    main(["elmo", *arguments, "--options-file", files.options, "--weight-file", files.weights])
    stock = _ElmoBiLm(*files)
    with h5py.File(tmp_path / "out") as file:
        for start in range(0, len(sentences), 4):
            batch = sentences[start : start + 4]
            with torch.no_grad():
                output = stock(batch_to_ids(batch))
            whole = (
                remove_sentence_boundaries(x, output["mask"])[0] for x in output["activations"]
            )
            embeddings = torch.stack([*whole], dim=1)
            for row, sentence in enumerate(batch):
                expected = embeddings[row, :, : len(sentence)].numpy()
                if layers != "all":
                    expected = expected[-1] if layers == "top" else numpy.average(expected, axis=0)
                found = file[str(start + row)]
                assert found.shape == expected.shape
                numpy.testing.assert_allclose(found, expected, **TOLERANCE)
