"""
Read and write a biLM in the files of Hugging Face transformers, `config.json` and
`model.safetensors`, with the names of `elmo_plugin.transformers.ElmoModel`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.optional_packages import import_optional
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.plain_tensors import plain_tensor, whole_file
from elmo_plugin.bilm.kernels.backend import plain
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

CONFIG_FILE, SAFETENSORS_FILE = "config.json", "model.safetensors"
TOKENIZER_FILE = "tokenizer_config.json"
# Name of the biLM in `ElmoModel`, and of a parameter that every biLM has.
PREFIX, FIRST = "_elmo_lstm.", "_token_embedder._char_embedding_weights"


def config_files(options: ElmoOptions) -> dict[str, Any]:
    """Return the content of `config.json` and of the tokenizer's file, by name."""
    config = {"model_type": "elmo", "architectures": ["ElmoModel"], "torch_dtype": "float32"}
    tokenizer = {"tokenizer_class": "ElmoTokenizer", "num_characters": options.num_characters}
    return {CONFIG_FILE: {**config, "options": options_dict(options)}, TOKENIZER_FILE: tokenizer}


def save_safetensors(bilm: BiLm, path: str | Path, dtype: str = "float32") -> None:
    """
    Write a biLM's parameters to a file, atomically. Raise a `ValueError` if a layer was replaced or
    hooked, or for an ELMoForManyLangs model, whose words such a file does not hold.
    """
    plain(bilm.plain_weights)
    if isinstance(bilm.options, ManyLangsOptions):
        raise ValueError("an ELMoForManyLangs model fits no safetensors, expected bilm-tf's kind")
    library = import_optional("safetensors.torch")
    stored = getattr(torch, dtype)
    tensors = {
        PREFIX + name: value.detach().to("cpu", stored).contiguous()
        for name, value in bilm.named_parameters()
    }
    with atomic_write(path) as temporary:
        library.save_file(tensors, temporary, metadata={"format": "pt"})


def read_safetensors(bilm: BiLm, path: str | Path) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """
    Yield each parameter of a biLM with its values from a file of `ElmoModel`, or of a model with a
    head around it. Raise a `FileNotFoundError` if there is no file, and a `ValueError` if it does
    not hold exactly this biLM.
    """
    library = import_optional("safetensors")
    with whole_file(path, "weight file", "safetensors file"):
        try:
            file = library.safe_open(str(path), framework="pt")
        except library.SafetensorError as error:
            raise ValueError(error) from error
    with file:
        names = set(file.keys())
        prefixes = [name.removesuffix(FIRST) for name in names if name.endswith(FIRST)]
        if len(prefixes) != 1:
            raise ValueError(f"{path} has {len(prefixes)} biLMs, expected one key ...{FIRST}")
        prefix = prefixes[0]
        expected = {prefix + name: one for name, one in bilm.named_parameters()}
        parts = tuple(prefix + name for name, _ in bilm.named_children())
        unused = {name for name in names - expected.keys() if name.startswith(parts)}
        if wrong := sorted(unused | (expected.keys() - names)):
            raise ValueError(
                f"{path} and the options are not of the same biLM: only one of them has {wrong[0]}"
            )
        for name, parameter in expected.items():
            shape = tuple(parameter.shape)
            found = {name: file.get_tensor(name)}
            yield parameter, plain_tensor(found, name, shape, path, parameter.dtype)
