"""
Tiny models of ELMoForManyLangs with random weights, as folders in its format, and what a token's
vector is, computed from those files alone; and the embedded biLM as one.
"""

import json

import numpy
import torch
from torch.nn import functional

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model import characters

MARKS = ["<oov>", "<pad>", "<bos>", "<eos>", "<bow>", "<eow>"]
LETTERS = list("abdehiklmnorstuvwyzäöß.,中文\u3000😀")
WORDS = ["<oov>", "<pad>", "<bos>", "<eos>", "the", "cat", "sat", "中文", "Über", ".", "naïve"]
SIZES = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 6,
        "cell_clip": 0.6,
        "proj_clip": 0.4,
        "dim": 10,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 3], [2, 4], [4, 5]],
        "n_highway": 2,
        "word_dim": 5,
        "char_dim": 4,
        "max_characters_per_token": 12,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8},
    "dropout": 0.1,
}
SENTENCES = [
    ["the", "cat", "sat", "."],
    ["中文", "Über", "\u3000", "naïve", "the" * 9],
    ["the"],
    ["<bos>", "<S>", "", "😀", "XYZ", "sat"],
]


def sizes(**changes):
    """`SIZES`, with other values for some keys of its two parts."""
    changed = json.loads(json.dumps(SIZES))
    for key, value in changes.items():
        part = next(part for part in ("encoder", "token_embedder") if key in changed[part])
        changed[part][key] = value
    return changed


def write_many_langs(folder, seed=0, old_container=False, **changes):
    """Writes a model; `changes` are values of `SIZES`."""
    found = sizes(**changes)
    folder.mkdir(parents=True)
    rng = numpy.random.default_rng(seed)
    config = {"config_path": "/home/trainer/elmo/configs/sizes.json", "seed": 1, "model": "xx"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "sizes.json").write_text(json.dumps(found))
    # The order of a dictionary is not that of its ids.
    for name, tokens in (("char.dic", MARKS + LETTERS), ("word.dic", WORDS)):
        ids = rng.permutation(len(tokens))
        lines = [f"{token}\t{number}\n" for token, number in zip(tokens, ids)]
        (folder / name).write_text("".join(lines), "utf-8")
    for name, shapes in _shapes(found).items():
        tensors = {
            key: torch.from_numpy(rng.normal(0, 0.5, shape).astype("float32"))
            for key, shape in shapes.items()
        }
        torch.save(tensors, folder / name, _use_new_zipfile_serialization=not old_container)
    return folder


def _shapes(found):
    token, encoder = found["token_embedder"], found["encoder"]
    filters = sum(number for _, number in token["filters"])
    dim, cell = encoder["projection_dim"], encoder["dim"]
    tokens = {"char_emb_layer.embedding.weight": (len(MARKS + LETTERS), token["char_dim"])}
    if token["word_dim"]:
        tokens["word_emb_layer.embedding.weight"] = (len(WORDS), token["word_dim"])
    for index, (width, number) in enumerate(token["filters"]):
        tokens[f"convolutions.{index}.weight"] = (number, token["char_dim"], width)
        tokens[f"convolutions.{index}.bias"] = (number,)
    for index in range(token["n_highway"]):
        tokens[f"highways._layers.{index}.weight"] = (2 * filters, filters)
        tokens[f"highways._layers.{index}.bias"] = (2 * filters,)
    tokens["projection.weight"] = (dim, token["word_dim"] + filters)
    tokens["projection.bias"] = (dim,)
    encoders = {}
    for layer in range(encoder["n_layers"]):
        for direction in ("forward", "backward"):
            prefix = f"{direction}_layer_{layer}"
            encoders[f"{prefix}.input_linearity.weight"] = (4 * cell, dim)
            encoders[f"{prefix}.state_linearity.weight"] = (4 * cell, dim)
            encoders[f"{prefix}.state_linearity.bias"] = (4 * cell,)
            encoders[f"{prefix}.state_projection.weight"] = (dim, cell)
    return {"token_embedder.pkl": tokens, "encoder.pkl": encoders}


def write_embedded(folder):
    """
    The embedded biLM as such a model: in ASCII text, bytes are code points, and the marks of a word
    have the rows of the ones that stand in the same places.
    """
    bilm = load_bilm("embedded")
    options, layer = bilm.options, bilm.char_cnn
    config = {
        "encoder": {
            "name": "elmo",
            "projection_dim": options.projection_dim,
            "cell_clip": options.cell_clip,
            "proj_clip": options.projection_clip,
            "dim": options.cell_size,
            "n_layers": options.num_layers,
        },
        "token_embedder": {
            "name": "cnn",
            "activation": options.activation,
            "filters": options.filters,
            "n_highway": options.num_highways,
            "word_dim": 0,
            "char_dim": options.char_embedding_dim,
            "max_characters_per_token": options.num_characters,
        },
    }
    assert options.use_skip_connections
    folder.mkdir()
    (folder / "config.json").write_text('{"config_path": "sizes.json"}')
    (folder / "sizes.json").write_text(json.dumps(config))
    marks = {
        "<bos>": characters.BEGIN_OF_SENTENCE_CHARACTER,
        "<eos>": characters.END_OF_SENTENCE_CHARACTER,
        "<eow>": characters.BEGIN_OF_WORD_CHARACTER,
        "<bow>": characters.END_OF_WORD_CHARACTER,
        "<pad>": characters.PADDING_CHARACTER,
        "<oov>": 0,
        **{chr(byte): byte for byte in range(0x21, 0x7F)},
    }
    lines = [f"{one}\t{number}\n" for number, one in enumerate(marks)]
    (folder / "char.dic").write_text("".join(lines))
    tensors = {"char_emb_layer.embedding.weight": layer.char_embedding[1:][list(marks.values())]}
    for name, modules in (
        ("convolutions", layer.convolutions),
        ("highways._layers", layer.highway_layers),
    ):
        for index, module in enumerate(modules):
            tensors[f"{name}.{index}.weight"] = module.weight
            tensors[f"{name}.{index}.bias"] = module.bias
    tensors["projection.weight"] = layer.projection.weight
    tensors["projection.bias"] = layer.projection.bias
    torch.save({key: one.detach() for key, one in tensors.items()}, folder / "token_embedder.pkl")
    torch.save(bilm.lstm.state_dict(), folder / "encoder.pkl")
    return folder


def token_vector(folder, token):
    """Of one token, step by step."""
    found = json.loads((folder / "sizes.json").read_text())["token_embedder"]
    weights = torch.load(folder / "token_embedder.pkl", weights_only=True)
    ids, words = (
        {key: int(number) for key, number in _entries(folder / name)}
        for name in ("char.dic", "word.dic")
    )
    token = token[: found["max_characters_per_token"] - 2]
    inner = [token] if token in ("<bos>", "<eos>") else list(token)
    row = ["<eow>", *inner, "<bow>"]
    row += ["<pad>"] * (found["max_characters_per_token"] - len(row))
    row = torch.tensor([ids.get(one, ids["<oov>"]) for one in row])
    embedded = weights["char_emb_layer.embedding.weight"][row].T[None]
    maxima = []
    for index in range(len(found["filters"])):
        weight, bias = (weights[f"convolutions.{index}.{part}"] for part in ("weight", "bias"))
        maxima.append(functional.conv1d(embedded, weight, bias)[0].max(dim=1).values)
    x = torch.relu(torch.cat(maxima))
    for index in range(found["n_highway"]):
        weight, bias = (weights[f"highways._layers.{index}.{part}"] for part in ("weight", "bias"))
        transform, gate = (weight @ x + bias).chunk(2)
        x = torch.sigmoid(gate) * x + (1 - torch.sigmoid(gate)) * torch.relu(transform)
    if found["word_dim"]:
        word = words.get(token, words["<oov>"])
        x = torch.cat([weights["word_emb_layer.embedding.weight"][word], x])
    return weights["projection.weight"] @ x + weights["projection.bias"]


def _entries(path):
    for line in path.read_text("utf-8").split("\n")[:-1]:
        parts = line.strip().split("\t")
        yield parts if len(parts) == 2 else ("\u3000", *parts)
