"""Small documents with random clusters, and `coref` models with random weights for them."""

import random
from typing import Any, Dict, List, Optional

import torch
from allennlp.common import Params
from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.models import Model

from tests.models.tasks import WORD_DIM, embedder, lstm, relu

WORDS = "the a dog cat Anna Ben she he it saw fed lost . 's".split()  # noqa: SIM905
MAX_SPAN_WIDTH = 4
FEATURE_SIZE = 3
CONTEXT_DIM = 6


def document(seed: int, num_sentences: int = 6, num_speakers: int = 2) -> Dict[str, Any]:
    """Arguments of the reader's `text_to_instance`."""
    draw = random.Random(seed)
    sentences = [draw.choices(WORDS, k=draw.randint(3, 9)) for _ in range(num_sentences)]
    speakers = [[f"S{draw.randrange(num_speakers)}"] * len(words) for words in sentences]
    spans, offset = [], 0
    for words in sentences:
        for start in range(len(words)):
            for end in range(start, min(start + MAX_SPAN_WIDTH, len(words))):
                spans.append((offset + start, offset + end))
        offset += len(words)
    draw.shuffle(spans)
    clusters = [[spans.pop() for _ in range(size)] for size in (4, 3, 2, 2)]
    return {"sentences": sentences, "gold_clusters": clusters, "speakers": speakers}


def reader(**arguments: Any) -> DatasetReader:
    return DatasetReader.from_params(
        Params({"type": "coref", "max_span_width": MAX_SPAN_WIDTH, **arguments})
    )


def config(num_features: int = 1, elmo_dim: int = 0, **arguments: Any) -> Dict[str, Any]:
    span_dim = 2 * CONTEXT_DIM + FEATURE_SIZE + WORD_DIM

    def layers(input_dim: int) -> Dict[str, Any]:
        return {**relu(input_dim, 7, dropout=0.2), "num_layers": 2}

    return {
        "type": "coref",
        "text_field_embedder": embedder(),
        "context_layer": {**lstm(WORD_DIM + elmo_dim), "hidden_size": CONTEXT_DIM // 2},
        "mention_feedforward": layers(span_dim),
        "antecedent_feedforward": layers(3 * span_dim + num_features * FEATURE_SIZE),
        "feature_size": FEATURE_SIZE,
        "max_span_width": MAX_SPAN_WIDTH,
        "spans_per_word": 0.4,
        "max_antecedents": 5,
        **arguments,
    }


def build(config: Dict[str, Any], instances: List[Instance], cls: Optional[type] = None) -> Model:
    """With weights large enough that all scores differ."""
    vocab = Vocabulary.from_instances(instances)
    params = Params(config).duplicate()
    torch.manual_seed(13)
    if cls is None:
        model = Model.from_params(params, vocab=vocab)
    else:
        params.pop("type")
        model = cls.from_params(params, vocab=vocab)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.5)
    # So that there are links.
    for scorer in (model._mention_scorer, model._antecedent_scorer):
        scorer._module.bias.data.fill_(1.0)
    return model.double().eval()
