"""
PyPI's elmoformanylangs 0.0.4.post2: random models made of its own modules and written by its own
`save_model`, and its vectors. `python tests/interop/elmoformanylangs_peer.py` (in `make interop`'s
environment) writes the stored model and vectors of tests/bilm/manylangs/peer.
"""

import json
import random
import shutil
import sys
import types
from pathlib import Path

import numpy
import torch

STORED = Path(__file__).parents[1] / "bilm" / "manylangs" / "peer"
MARKS = ["<oov>", "<pad>", "<bos>", "<eos>", "<bow>", "<eow>"]
LETTERS = list("abcdefghijklmnopäöüßñéё.-中文日本語\u3000𝔘😀")


def peer():
    """Its parts; overrides 7 refuses a method of it without a return type."""
    kept = sys.modules.get("overrides")
    sys.modules["overrides"] = types.SimpleNamespace(overrides=lambda method: method)
    try:
        from elmoformanylangs import biLM, elmo, frontend
        from elmoformanylangs.modules import embedding_layer
    finally:
        if kept is None:
            del sys.modules["overrides"]
        else:
            sys.modules["overrides"] = kept
    return types.SimpleNamespace(
        Model=frontend.Model,
        save_model=biLM.Model.save_model,
        EmbeddingLayer=embedding_layer.EmbeddingLayer,
        Embedder=elmo.Embedder,
    )


def write(folder, seed, with_words, old_container):
    """Writes a random model of random sizes; returns sentences to try it on."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    characters = MARKS + LETTERS
    rng.shuffle(characters)
    letters = [letter for letter in LETTERS if letter != "\u3000"]

    def word(alphabet, longest):
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, longest)))

    words = list(dict.fromkeys([*MARKS[:4], *(word(letters, 6) for _ in range(30))]))
    rng.shuffle(words)
    char_ids = {one: number for number, one in enumerate(characters)}
    word_ids = {one: number for number, one in enumerate(words)}
    config = {
        "encoder": {
            "name": "elmo",
            "projection_dim": rng.choice([5, 8]),
            "cell_clip": rng.choice([0.6, 3, 0]),
            "proj_clip": rng.choice([0.4, 3]),
            "dim": rng.choice([7, 12]),
            "n_layers": rng.choice([1, 2, 3]),
        },
        "token_embedder": {
            "name": "cnn",
            "activation": rng.choice(["relu", "tanh"]),
            "filters": [[1, 2], [2, 3], [rng.choice([3, 7]), 3]],
            "n_highway": rng.choice([0, 1, 2]),
            "word_dim": 6 if with_words else 0,
            "char_dim": 4,
            "max_characters_per_token": rng.choice([10, 50]),
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 10},
        "dropout": 0.1,
    }
    theirs = peer()
    model = theirs.Model(
        config,
        theirs.EmbeddingLayer(6, word_ids, fix_emb=False) if with_words else None,
        theirs.EmbeddingLayer(4, char_ids, fix_emb=False),
    )
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.4)
    folder.mkdir(parents=True)
    save = torch.save
    try:
        if old_container:
            torch.save = lambda *given: save(*given, _use_new_zipfile_serialization=False)
        theirs.save_model(model, str(folder), False)
    finally:
        torch.save = save
    for name, ids in (("char.dic", char_ids), ("word.dic", word_ids)):
        lines = [f"{one}\t{number}\n" for one, number in ids.items()]
        (folder / name).write_text("".join(lines), "utf-8")
    named = {"config_path": "/users4/conll18st/elmo/configs/sizes.json", "seed": 1}
    (folder / "config.json").write_text(json.dumps(named))
    (folder / "sizes.json").write_text(json.dumps(config))

    def token():
        return rng.choice(
            [rng.choice(words), word([*letters, "\u3000", "X", "Ж"], 70), "<bos>", "<S>", "", "😀x"]
        )

    return [[token() for _ in range(rng.randint(1, 9))] for _ in range(6)]


def vectors(folder, sentences):
    """All layers of each sentence on its own, from zero states: a fresh `Embedder` for each."""
    embedder = peer().Embedder
    return [embedder(str(folder)).sents2elmo([one], -2)[0] for one in sentences]


if __name__ == "__main__":
    shutil.rmtree(STORED, ignore_errors=True)
    model = STORED / "xx.model"
    sentences = write(model, seed=10, with_words=True, old_container=True)
    (STORED / "sentences.json").write_text(json.dumps(sentences, ensure_ascii=False), "utf-8")
    found = vectors(model, sentences)
    numpy.savez_compressed(STORED / "vectors.npz", *found)
