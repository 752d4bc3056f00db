"""spaCy's pipeline for splitting text, without a download."""

import itertools
import logging
from pathlib import Path

import spacy
from allennlp.common import util as common_util
from allennlp.data.tokenizers import SpacyTokenizer

logger = logging.getLogger(__name__)

DEFAULT = "en_core_web_sm"  # of AllenNLP's readers and predictors


def is_installed(model: str) -> bool:
    """Return whether a spaCy model is an installed package or an existing folder."""
    return spacy.util.is_package(model) or Path(model).exists()


def split_by_rules(model: str) -> None:
    """
    If the spaCy model named `model` is not installed, stop AllenNLP's `SpacyTokenizer` from
    downloading it only to split text. In this process, the tokenizer then uses a blank pipeline of
    the model's language, which has the same rules, but gives no part-of-speech tags, parses and
    entities. Where a parse was to find sentences, they end at full stops, question marks and
    exclamation marks.
    """
    either = (True, False)
    keys = [(model, *options) for options in itertools.product(either, either, either)]
    missing = [key for key in keys if key not in common_util.LOADED_SPACY_MODELS]
    if not missing or is_installed(model):
        return
    logger.info(
        "spaCy's %s is not installed: its tokenizer splits text by the same rules, but gives no "
        "part-of-speech tags, parses and entities, which few readers use (`python -m spacy "
        "download %s` installs it)",
        model,
        model,
    )
    words, sentences = (spacy.blank(model.split("_")[0]) for _ in range(2))
    sentences.add_pipe("sentencizer")
    for key in missing:
        common_util.LOADED_SPACY_MODELS[key] = sentences if key[2] else words


def spacy_tokenizer(pos_tags: bool = True) -> SpacyTokenizer:
    """Return AllenNLP's default `SpacyTokenizer`, by rules alone if spaCy's model is missing."""
    split_by_rules(DEFAULT)
    return SpacyTokenizer(pos_tags=pos_tags)
