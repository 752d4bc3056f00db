"""What is written and returned, against AllenNLP's own layers and the stored outputs, in carry."""

import json

import h5py
import numpy
import pytest
import torch

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.use.hub import ElmoHub
from tests.bilm.use.test_embedder import StockEmbedder
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
    stock = StockEmbedder(files)
    with h5py.File(tmp_path / "out") as file:
        for start in range(0, len(sentences), 4):
            batch = sentences[start : start + 4]
            embeddings, _ = stock(batch)
            for row, sentence in enumerate(batch):
                expected = embeddings[row, :, : len(sentence)].numpy()
                if layers != "all":
                    expected = expected[-1] if layers == "top" else numpy.average(expected, axis=0)
                found = file[str(start + row)]
                assert found.shape == expected.shape
                numpy.testing.assert_allclose(found, expected, **TOLERANCE)


def test_every_output_of_the_hub_is_allennlp_s(files):
    from allennlp.modules.elmo import Elmo, batch_to_ids

    hub = ElmoHub(*files, state="carry").eval()
    layers, mixed = StockEmbedder(files), Elmo(*files, 1, dropout=0.0).eval()
    for batch in BATCHES:
        with torch.no_grad():
            found = hub([" ".join(sentence) for sentence in batch])
            elmo = mixed(batch_to_ids(batch))
        expected, mask = layers(batch)
        mean = elmo["elmo_representations"][0].sum(dim=1) / mask.sum(dim=1, keepdim=True)
        torch.testing.assert_close(found["word_emb"], expected[:, 0, :, :6], **TOLERANCE)
        torch.testing.assert_close(found["lstm_outputs1"], expected[:, 1], **TOLERANCE)
        torch.testing.assert_close(found["lstm_outputs2"], expected[:, 2], **TOLERANCE)
        torch.testing.assert_close(found["elmo"], elmo["elmo_representations"][0], **TOLERANCE)
        torch.testing.assert_close(found["default"], mean, **TOLERANCE)


def test_the_command_writes_the_stored_outputs(tmp_path, bilm_fixture):
    rows = json.loads((bilm_fixture / "sentences.json").read_text())
    (tmp_path / "in").write_text("\n".join(row[number] for number in range(10) for row in rows))
    arguments = [str(tmp_path / "in"), str(tmp_path / "out"), "--top", "--state", "carry"]
    arguments += ["--options-file", str(bilm_fixture / "options.json")]
    arguments += ["--weight-file", str(bilm_fixture / "lm_weights.hdf5")]
    main(["elmo", *arguments, "--batch-size", "3", "--max-tokens", "40"])
    with h5py.File(tmp_path / "out") as file:
        for row in range(3):
            with h5py.File(bilm_fixture / f"lm_embeddings_{row}.hdf5") as stored:
                for number in range(10):
                    expected = numpy.concatenate(list(stored[str(number)][...]), axis=-1)
                    found = file[str(3 * number + row)]
                    numpy.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-5)
