"""
Small `srl` models with fixed weights, and what they compute; as a script, what allennlp-models'
class computes with the same weights (in `make peers`' environment, perl needed):

    .venv-peers/bin/python -m tests.models.srl_cases
"""

import json
from pathlib import Path
from typing import Any, Dict, List

import torch
from allennlp.common import Params
from allennlp.data import Instance, Token, Vocabulary
from allennlp.data.fields import MetadataField, SequenceLabelField, TextField
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer, SingleIdTokenIndexer
from allennlp.models import Model

from tests.models.batches import losses, tensors

# Words, predicate, tags.
SENTENCES = [
    ("The dog barks .", 2, "B-ARG0 I-ARG0 B-V O"),
    ("The door , he said , was open .", 4, "B-ARG1 I-ARG1 O B-ARG0 B-V O B-C-ARG1 I-C-ARG1 O"),
    ("Rain !", None, "O O"),
    ("He who sings smiles at the dog .", 2, "B-ARG0 B-R-ARG0 B-V O O O O O"),
    ("She gave him the door .", 1, "B-ARG0 B-V B-ARG2 B-ARG1 I-ARG1 O"),
]


def instances(elmo: bool = False) -> List[Instance]:
    indexers: Dict[str, Any] = {"tokens": SingleIdTokenIndexer()}
    if elmo:
        indexers["elmo"] = ELMoTokenCharactersIndexer()
    made = []
    for text, verb_index, tags in SENTENCES:
        words = text.split()
        field = TextField([Token(word) for word in words], indexers)
        metadata = {
            "words": words,
            "verb_index": verb_index,
            "verb": None if verb_index is None else words[verb_index],
            "gold_tags": tags.split(),
        }
        made.append(
            Instance(
                {
                    "tokens": field,
                    "verb_indicator": SequenceLabelField(
                        [int(position == verb_index) for position in range(len(words))], field
                    ),
                    "tags": SequenceLabelField(tags.split(), field),
                    "metadata": MetadataField(metadata),
                }
            )
        )
    return made


def params(input_dim: int = 7, **arguments: Any) -> Dict[str, Any]:
    return {
        "text_field_embedder": {
            "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}
        },
        "encoder": {
            "type": "alternating_lstm",
            "input_size": input_dim,
            "hidden_size": 5,
            "num_layers": 3,
            "recurrent_dropout_probability": 0.2,
        },
        "binary_feature_dim": 3,
        **arguments,
    }


CASES: Dict[str, Dict[str, Any]] = {
    "srl": {},
    "srl with dropout and smoothing": {"embedding_dropout": 0.3, "label_smoothing": 0.1},
    "srl without score": {"ignore_span_metric": True},
    "srl without script": {"srl_eval_path": None, "ignore_span_metric": True},
}


def build(cls: type, arguments: Dict[str, Any], elmo: bool = False) -> Model:
    """A model of `cls` whose weights depend on the seed and their names' order only."""
    vocab = Vocabulary.from_instances(instances(elmo))
    model = cls.from_params(Params(params(**arguments)), vocab=vocab)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "_elmo" not in name:
            parameter.data = torch.randn(parameter.shape, generator=generator)
    # So that what differs is the computation, not its rounding; the biLM stays in float32.
    return model if elmo else model.double()


def batch(model: Model, elmo: bool = False) -> Dict[str, Any]:
    return tensors(model, instances(elmo))


def outputs(model: Model) -> Dict[str, Any]:
    model.eval()
    with torch.no_grad():
        found = model(**batch(model))
    readable = model.make_output_human_readable(dict(found))
    return {
        "loss": found["loss"].item(),
        "logits": found["logits"].flatten().tolist(),
        "class_probabilities": found["class_probabilities"].flatten().tolist(),
        "tags": readable["tags"],
        "words": readable["words"],
        "verb": readable["verb"],
        "metrics": model.get_metrics(reset=True),
        "names": list(model.state_dict()),
    }


if __name__ == "__main__":
    from allennlp_models.structured_prediction import SemanticRoleLabeler

    stored = {}
    for name, arguments in CASES.items():
        stored[name] = outputs(build(SemanticRoleLabeler, arguments))
        model = build(SemanticRoleLabeler, arguments)
        stored[name]["losses"] = losses(model, batch(model))
    text = json.dumps(stored, default=float)
    Path(__file__).with_name("srl_cases.json").write_text(
        json.dumps(json.loads(text, parse_float=lambda number: round(float(number), 7))) + "\n"
    )
