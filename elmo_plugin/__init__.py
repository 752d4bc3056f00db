"""
ELMo (Peters et al. 2018) as an AllenNLP plugin.

`import elmo_plugin` is quick: names are loaded when they are first used, and those of
`elmo_plugin.bilm` work where AllenNLP is not installed. What configs use is registered by
`elmo_plugin.plugin`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Elmo": "elmo_plugin.bilm.use.elmo",
    "batch_to_ids": "elmo_plugin.bilm.model.characters",
    "BiLm": "elmo_plugin.bilm.model.bilm",
    "ElmoOptions": "elmo_plugin.bilm.model.options",
    "ScalarMix": "elmo_plugin.bilm.model.scalar_mix",
    "ElmoHub": "elmo_plugin.bilm.use.hub",
    "ElmoEmbedder": "elmo_plugin.bilm.use.embedder",
    "extract": "elmo_plugin.bilm.extraction.extract",
    "Extraction": "elmo_plugin.bilm.extraction.settings",
    "sentence_key": "elmo_plugin.bilm.extraction.layouts",
    "load_bilm": "elmo_plugin.bilm.files.load",
    "load_weights": "elmo_plugin.bilm.files.weights",
    "save_weights": "elmo_plugin.bilm.files.weights",
    "ElmoTokenEmbedder": "elmo_plugin.modules.token_embedder",
    "ElmoTokenCharactersIndexer": "elmo_plugin.data.indexer",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
