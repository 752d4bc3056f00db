"""
ELMo (Peters et al. 2018) as an AllenNLP plugin.

`import elmo_plugin` is quick: each public name is imported when it is first used. Most public names
work without AllenNLP. When AllenNLP first looks up a registered name, `elmo_plugin.plugin` is
imported, which registers this package's classes. AllenNLP may be imported before or after
`elmo_plugin`.
"""

import os
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional, Sequence

__version__ = "0.4.0.dev0"

# Public names, for editors and type checkers, which do not call `__getattr__`.
if TYPE_CHECKING:
    from elmo_plugin.bilm.corpus.embed import embed_corpus as embed_corpus
    from elmo_plugin.bilm.corpus.parquet import read_corpus as read_corpus
    from elmo_plugin.bilm.corpus.plan import CorpusSettings as CorpusSettings
    from elmo_plugin.bilm.extraction.extract import extract as extract
    from elmo_plugin.bilm.extraction.layouts import sentence_key as sentence_key
    from elmo_plugin.bilm.extraction.vectors import Extraction as Extraction
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

# The module of each public name, for `__getattr__`. A test compares it with the imports above.
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
    "Extraction": "elmo_plugin.bilm.extraction.vectors",
    "sentence_key": "elmo_plugin.bilm.extraction.layouts",
    "embed_corpus": "elmo_plugin.bilm.corpus.embed",
    "read_corpus": "elmo_plugin.bilm.corpus.parquet",
    "CorpusSettings": "elmo_plugin.bilm.corpus.plan",
    "load_bilm": "elmo_plugin.bilm.files.load",
    "load_weights": "elmo_plugin.bilm.files.weights",
    "save_weights": "elmo_plugin.bilm.files.weights",
    "ElmoTokenEmbedder": "elmo_plugin.modules.token_embedder",
    "ElmoTransformer": "elmo_plugin.scikit_learn",
    "ElmoTokenCharactersIndexer": "elmo_plugin.data.indexer",
}

# These modules add to the classes what AllenNLP needs, once AllenNLP is imported.
_FOR_CONFIGS = {
    "Elmo": "elmo_plugin.modules.elmo",
    "ScalarMix": "elmo_plugin.modules.scalar_mix",
}

__all__ = ["__version__", *_HOMES]


if not TYPE_CHECKING:  # a type checker that sees `__getattr__` would accept any name

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
            if name in _FOR_CONFIGS and _FROM_PARAMS in sys.modules:
                import_module(_FOR_CONFIGS[name])
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


_REGISTRY = "allennlp.common.registrable"


def _register_at_first_look_up(registry: ModuleType) -> None:
    """Import `elmo_plugin.plugin` when AllenNLP first looks up a registered name."""
    # The plugin replaces registered classes of AllenNLP on purpose. Drop the messages about it.
    registry.logger.addFilter(
        lambda record: "exist_ok=True, so overwriting" not in record.getMessage()
    )
    registrable = registry.Registrable

    def wrap(stock: Any) -> Any:
        def look_up(cls: Any, *arguments: Any) -> Any:
            import_module("elmo_plugin.plugin")  # if another thread imports it, wait for its end
            return stock.__func__(cls, *arguments)

        return classmethod(look_up)

    for name in ("resolve_class_name", "list_available"):
        setattr(registrable, name, wrap(vars(registrable)[name]))


_PROGRAM = "allennlp.commands.train"


def _load_plugin(_: ModuleType) -> None:
    """Import `elmo_plugin.plugin`, so that `train --force` does not empty a pretraining folder."""
    # If `compat` is in `sys.modules`, its import may still be running, and the plugin needs the
    # complete module. The first look-up of a registered name then imports the plugin.
    if "elmo_plugin.compat" not in sys.modules:
        import_module("elmo_plugin.plugin")


_FROM_PARAMS = "allennlp.common.from_params"


def _add_to_classes(modules: ModuleType) -> None:
    """
    Let AllenNLP build the classes of `_FOR_CONFIGS` that are imported already, and take the names
    of `elmo_plugin.as_allennlp`, if a program has imported it.
    """
    if not hasattr(modules, "__file__"):  # the stand-in of `elmo_plugin.as_allennlp`
        return
    for name, module in _FOR_CONFIGS.items():
        if _HOMES[name] in sys.modules:
            import_module(module)
    if "elmo_plugin.as_allennlp" in sys.modules:
        import_module("elmo_plugin.as_allennlp").replace_installed(modules)


_AT_IMPORT = {
    "allennlp.modules": _add_to_classes,
    _REGISTRY: _register_at_first_look_up,
    _PROGRAM: _load_plugin,
}


class _AllenNlpFinder(MetaPathFinder):
    """
    Import hook that calls a module's function in `_AT_IMPORT` right after the module's import.
    """

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[ModuleSpec]:
        if fullname not in _AT_IMPORT:
            return None
        then = _AT_IMPORT.pop(fullname)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if __name__ == "elmo_plugin":  # setup.py runs this file under another name to read the version
    # Let PyTorch's idle OpenMP threads sleep soon. By default they spin for long, and may take the
    # core that a working thread needs. PyTorch reads the variable when it is imported.
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    for _name in [_one for _one in _AT_IMPORT if _one in sys.modules]:
        _AT_IMPORT.pop(_name)(sys.modules[_name])
    if _AT_IMPORT:
        sys.meta_path.insert(0, _AllenNlpFinder())
