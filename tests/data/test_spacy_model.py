"""Readers and predictors split text without a download, also if AllenNLP loaded no plugin."""

import pytest
import spacy

from tests.fresh_process import run

PROGRAM = """
from importlib import import_module
from types import SimpleNamespace
import torch
from allennlp.common import util

def download(name):
    raise ConnectionError(f"{name} would be downloaded")

util.spacy_download = download
model, reader = torch.nn.Linear(1, 1), SimpleNamespace(text_to_instance=list)
for module, name, arguments in (
    ("elmo_plugin.data.readers.squad", "SquadReader", ()),
    ("elmo_plugin.data.readers.snli", "SnliReader", ()),
    ("elmo_plugin.data.document_qa_tokenizer", "DocumentQaTokenizer", ()),
    ("elmo_plugin.predictors.sentence_tagger", "SentenceTaggerPredictor", (model, reader)),
    ("elmo_plugin.predictors.sentence_tagger", "SentenceTaggerPredictor",
     (model, reader, "en_core_web_md")),
    ("elmo_plugin.predictors.srl", "SemanticRoleLabelerPredictor", (model, reader)),
    ("elmo_plugin.predictors.text_classifier", "TextClassifierPredictor", (model, reader)),
    # With the plugin, AllenNLP's own classes do not download either.
    ("elmo_plugin.plugin", "SpacyTokenizer", ("en_core_web_md",)),
):
    util.LOADED_SPACY_MODELS.clear()
    if module == "elmo_plugin.plugin":
        import_module(module)
        module = "allennlp.data.tokenizers"
    made = getattr(import_module(module), name)(*arguments)
    if name == "TextClassifierPredictor":
        tokens = made._json_to_instance({"sentence": "I don't."})
    else:
        tokens = getattr(made, "_tokenizer", made).tokenize("I don't.")
    print(name, *tokens)
from allennlp.data.tokenizers.sentence_splitter import SpacySentenceSplitter
print("split", *SpacySentenceSplitter().split_sentences("Yes. No."))
"""


@pytest.mark.skipif(spacy.util.is_package("en_core_web_sm"), reason="en_core_web_sm is installed")
def test_no_model_is_downloaded():
    found = run(PROGRAM)
    lines = [line.split() for line in found.stdout.splitlines()]
    assert len(lines) == 9, found.stderr[-1000:]
    assert [tokens for _, *tokens in lines] == [["I", "do", "n't", "."]] * 8 + [["Yes.", "No."]]
