"""
Read ELMoForManyLangs models from their folders: `config.json`, `char.dic`, `word.dic`, and two
pickles of tensors (https://github.com/HIT-SCIR/ELMoForManyLangs, elmoformanylangs/elmo.py, version
0.0.4.post2 on PyPI). No code in a pickle is executed.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

import torch

from elmo_plugin.bilm.files.options import (
    MOST_LAYERS,
    MOST_WORDS,
    OptionsReader,
    check_size,
    read_json,
)
from elmo_plugin.bilm.files.plain_tensors import plain_tensor, plain_tensors
from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.bilm.manylangs.lexicon import Lexicon
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.char_cnn import CharCnn

CONFIG, CHARACTERS, WORDS = "config.json", "char.dic", "word.dic"
TOKENS, LSTM = "token_embedder.pkl", "encoder.pkl"
FILES = (CONFIG, CHARACTERS, WORDS, TOKENS, LSTM)

# `config.json` names a second file, which holds the sizes. Released models name one of these two
# files, which come with the program ELMoForManyLangs and not with the model.
RELEASED_SIZES = {
    name: {
        "encoder": {
            "name": "elmo",
            "projection_dim": 512,
            "cell_clip": 3,
            "proj_clip": 3,
            "dim": 4096,
            "n_layers": 2,
        },
        "token_embedder": {
            "name": "cnn",
            "activation": "relu",
            "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
            "n_highway": 2,
            "word_dim": 100,
            "char_dim": 50,
            "max_characters_per_token": 50,
        },
    }
    for name in ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")
}
# Descriptions of modules that ELMoForManyLangs can train, but this package cannot read.
UNSUPPORTED = {
    "encoder": "an LSTM without clips and skip connections in place of ELMo's",
    "token_embedder": "an LSTM over a word's characters in place of the char-CNN",
}
EXPECTED = "expected a folder of ELMoForManyLangs: " + ", ".join(FILES)


def is_many_langs(folder: Path) -> bool:
    """Return whether a folder has files that only ELMoForManyLangs models have."""
    return any((folder / name).exists() for name in (CHARACTERS, TOKENS, LSTM))


def many_langs_options(folder: Path) -> ManyLangsOptions:
    """
    Read the sizes of an ELMoForManyLangs model from its folder. Raise a `FileNotFoundError` if a
    file is missing, and a `ValueError` if one is unusable or the kind of model is not supported.
    """
    for name in (CONFIG, CHARACTERS, TOKENS, LSTM):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no file {name}, {EXPECTED}")
    sizes = _sizes(folder)
    for part, wanted in (("encoder", "elmo"), ("token_embedder", "cnn")):
        found = sizes.value(f"{part}.name", str)
        if found.lower() != wanted:
            need = f"{wanted!r}; {UNSUPPORTED[part]} is not supported"
            raise sizes.error(f"{part}.name", found, need)
    if sizes.value("token_embedder.char_dim", int) == 0:
        need = "a width; a model of words without characters is not supported"
        raise sizes.error("token_embedder.char_dim", 0, need)
    word_dim = sizes.count("token_embedder.word_dim", least=0)
    options = ManyLangsOptions(
        **sizes.sizes("encoder", "token_embedder"),
        num_layers=sizes.count("encoder.n_layers", most=MOST_LAYERS),
        char_embedding_dim=sizes.count("token_embedder.char_dim"),
        num_embeddings=len(_read_ids(folder / CHARACTERS)),
        num_words=len(_read_ids(folder / WORDS)) if word_dim else 0,
        word_dim=word_dim,
    )
    check_size(options, str(folder))
    return options


def read_lexicon(folder: Path, options: ManyLangsOptions) -> Lexicon:
    """
    Read the dictionaries of an ELMoForManyLangs model from its folder. Raise a `ValueError` if
    their sizes differ from those in `options`, or a file is unusable.
    """
    characters = _read_ids(folder / CHARACTERS)
    words = _read_ids(folder / WORDS) if options.word_dim else {}
    for name, ids, number in (
        (CHARACTERS, characters, options.num_embeddings),
        (WORDS, words, options.num_words),
    ):
        if len(ids) != number:
            raise ValueError(f"{folder / name} has {len(ids)} entries, the options say {number}")
    try:
        return Lexicon(characters, words)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error


def read_pickles(bilm: BiLm, folder: Path) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """
    Yield each parameter, or a slice of one, with its values from the ELMoForManyLangs folder from
    whose options the biLM was made. Raise the errors of `plain_tensors`, and a `ValueError` if a
    pickle does not hold exactly the tensors that the options require.
    """
    # Both the file and `bilm.lstm` have AllenNLP's parameter names and gate order.
    lstm = {name: [parameter] for name, parameter in bilm.lstm.named_parameters()}
    for name, parameters in ((TOKENS, _token_parameters(bilm.char_cnn)), (LSTM, lstm)):
        tensors = plain_tensors(folder / name, "weight file of ELMoForManyLangs")
        for key, targets in parameters.items():
            # A tensor of the file may be several parameters, concatenated along the last dimension.
            shape = (*targets[0].shape[:-1], sum(one.shape[-1] for one in targets))
            new = plain_tensor(tensors, key, shape, folder / name, targets[0].dtype)
            yield from zip(targets, new.split([one.shape[-1] for one in targets], dim=-1))
        if unused := sorted(map(str, tensors.keys() - parameters.keys())):
            raise ValueError(
                f"{folder / name}: the sizes in the config have no place for "
                f"{', '.join(unused)[:500]}; expected the config of the same model"
            )


def _sizes(folder: Path) -> OptionsReader:
    path = folder / CONFIG
    named = OptionsReader(read_json(path, "ELMoForManyLangs config"), str(path))
    # `config_path` may be a Windows path; PureWindowsPath splits at `\` and at `/`.
    name = PureWindowsPath(named.value("config_path", str)).name
    beside = folder / name
    if name != CONFIG and beside.is_file():
        return OptionsReader(read_json(beside, "ELMoForManyLangs config"), str(beside))
    if name in RELEASED_SIZES:
        return OptionsReader(RELEASED_SIZES[name], f"{path}, {name}")
    raise FileNotFoundError(
        f"{path}: config_path is {quoted(named.value('config_path', str))}, but there is no file "
        f"{name!r} in the folder; expected it there, or one of {', '.join(RELEASED_SIZES)}"
    )


def _read_ids(path: Path) -> dict[str, int]:
    """Read a `.dic` file of `token<tab>id` lines as a dict; other lines cause a `ValueError`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}, {EXPECTED}")
    ids: dict[str, int] = {}
    used: dict[int, str] = {}
    for number, line in read_lines(path):
        # Released models have the token U+3000, a space that `strip` removes: no token is left.
        *tokens, last = line.strip().split("\t")
        token = tokens[0] if tokens else "\u3000"
        if len(tokens) > 1 or not (last.isascii() and last.isdigit()) or len(last) > 9:
            raise ValueError(
                f"{path}, line {number} is {quoted(line.rstrip())}, expected a token, a tab and "
                "its id"
            )
        identifier = int(last)
        if token in ids or identifier in used:
            raise ValueError(
                f"{path}, line {number}: the token {quoted(token)} or the id {identifier} is on an "
                "earlier line too, expected each once"
            )
        if len(ids) == MOST_WORDS:
            raise ValueError(f"{path} has more than {MOST_WORDS} entries, expected fewer")
        ids[token] = identifier
        used[identifier] = token
    if greatest := max(used, default=0) + 1 - len(used):
        raise ValueError(
            f"{path} has {len(used)} entries, but the id {max(used, default=0)}; {greatest} are "
            "missing, expected every id from 0"
        )
    return ids


def _token_parameters(layer: CharCnn) -> dict[str, list[torch.Tensor]]:
    """Return a token layer's parameters by the names of ELMoForManyLangs."""
    found: dict[str, list[torch.Tensor]] = {
        re.sub("^char_conv_", "convolutions.", name).removeprefix("_"): [parameter]
        for name, parameter in layer.named_parameters()
    }
    # Row 0, zeros for the padding token, is not in the file.
    characters = found.pop("char_embedding_weights")[0][1:]
    embeddings = {"char_emb_layer.embedding.weight": [characters]}
    if "word_vectors" in found:
        embeddings["word_emb_layer.embedding.weight"] = found.pop("word_vectors")
        found["projection.weight"][:0] = found.pop("word_projection.weight")
    return embeddings | found
