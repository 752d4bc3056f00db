"""
ELMo (Peters et al. 2018) as an AllenNLP plugin.

`import elmo_plugin` is quick: names are loaded when they are first used, and those of
`elmo_plugin.bilm` work where AllenNLP is not installed. What configs use is registered by
`elmo_plugin.plugin`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0.dev0"

# Every public name twice: for editors and type checkers, which import nothing ...
if TYPE_CHECKING:
    from elmo_plugin.bilm.corpus.parquet import read_corpus as read_corpus
    from elmo_plugin.bilm.corpus.run import embed_corpus as embed_corpus
    from elmo_plugin.bilm.corpus.settings import CorpusSettings as CorpusSettings
    from elmo_plugin.bilm.extraction.extract import extract as extract
    from elmo_plugin.bilm.extraction.layouts import sentence_key as sentence_key
    from elmo_plugin.bilm.extraction.settings import Extraction as Extraction
    from elmo_plugin.bilm.files.load import load_bilm as load_bilm
    from elmo_plugin.bilm.files.weights import load_weights as load_weights
    from elmo_plugin.bilm.files.weights import save_weights as save_weights
    from elmo_plugin.bilm.model.bilm import BiLm as BiLm
    from elmo_plugin.bilm.model.characters import batch_to_ids as batch_to_ids
    from elmo_plugin.bilm.model.options import ElmoOptions as ElmoOptions
    from elmo_plugin.bilm.model.scalar_mix import ScalarMix as ScalarMix
    from elmo_plugin.bilm.use.elmo import Elmo as Elmo
    from elmo_plugin.bilm.use.embedder import ElmoEmbedder as ElmoEmbedder
    from elmo_plugin.bilm.use.hub import ElmoHub as ElmoHub
    from elmo_plugin.bilm.use.scoring import LanguageScorer as LanguageScorer
    from elmo_plugin.data.indexer import ElmoTokenCharactersIndexer as ElmoTokenCharactersIndexer
    from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder as ElmoTokenEmbedder
    from elmo_plugin.scikit_learn import ElmoTransformer as ElmoTransformer

# ... and for Python, where each is imported when it is first used. A test compares the two.
_HOMES = {
    "Elmo": "elmo_plugin.bilm.use.elmo",
    "batch_to_ids": "elmo_plugin.bilm.model.characters",
    "BiLm": "elmo_plugin.bilm.model.bilm",
    "ElmoOptions": "elmo_plugin.bilm.model.options",
    "ScalarMix": "elmo_plugin.bilm.model.scalar_mix",
    "ElmoHub": "elmo_plugin.bilm.use.hub",
    "LanguageScorer": "elmo_plugin.bilm.use.scoring",
    "ElmoEmbedder": "elmo_plugin.bilm.use.embedder",
    "extract": "elmo_plugin.bilm.extraction.extract",
    "Extraction": "elmo_plugin.bilm.extraction.settings",
    "sentence_key": "elmo_plugin.bilm.extraction.layouts",
    "embed_corpus": "elmo_plugin.bilm.corpus.run",
    "read_corpus": "elmo_plugin.bilm.corpus.parquet",
    "CorpusSettings": "elmo_plugin.bilm.corpus.settings",
    "load_bilm": "elmo_plugin.bilm.files.load",
    "load_weights": "elmo_plugin.bilm.files.weights",
    "save_weights": "elmo_plugin.bilm.files.weights",
    "ElmoTokenEmbedder": "elmo_plugin.modules.token_embedder",
    "ElmoTransformer": "elmo_plugin.scikit_learn",
    "ElmoTokenCharactersIndexer": "elmo_plugin.data.indexer",
}

# Where AllenNLP is installed, those of the names that its configs can build, with its errors.
_FOR_CONFIGS = {
    "Elmo": "elmo_plugin.modules.elmo",
    "ScalarMix": "elmo_plugin.modules.scalar_mix",
}

__all__ = ["__version__", *_HOMES]


def _has_allennlp() -> bool:
    try:
        found = find_spec("allennlp")
    except ImportError:  # an importer may hide it so
        return False
    # Not what `elmo_plugin.as_allennlp` puts in its place, which is in no file.
    return found is not None and found.has_location


if not TYPE_CHECKING:  # which would take any name for a public one

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            home = _HOMES[name]
            if name in _FOR_CONFIGS and _has_allennlp():
                home = _FOR_CONFIGS[name]
            return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
