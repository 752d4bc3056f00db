"""
Small `esim` and `bcn` models with fixed weights, and what they compute; as a script, what
allennlp-models' classes with AllenNLP's ELMo compute with the same weights (in `make peers`'
environment):

    .venv-peers/bin/python -m tests.models.classifier_cases > tests/models/classifier_cases.json
"""

import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List

import numpy
import torch
from allennlp.common import Params
from allennlp.data import Instance, Vocabulary
from allennlp.data.fields import LabelField, TextField
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer, SingleIdTokenIndexer
from allennlp.data.tokenizers import Token
from allennlp.models import Model

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from tests.models.batches import tensors
from tests.tiny_bilm import SMALLEST

PAIRS = [
    ("A young woman sings in the park .", "Nobody is singing", "contradiction"),
    ("Two dogs run", "Two animals are moving outside the house .", "neutral"),
    ("Rain", "It rains", "entailment"),
    ("A boy eats bread .", "A boy eats", "entailment"),
]
TEXTS = [
    ("The walk was long but splendid .", "3"),
    ("Dreadful", "0"),
    ("Their room is rather green", "2"),
    ("a very , very dull book .", "1"),
    ("Brilliant !", "4"),
]
EMBEDDING_DIM = SMALLEST.embedding_dim


def lstm(input_size: int) -> Dict[str, Any]:
    return {"type": "lstm", "input_size": input_size, "hidden_size": 2, "bidirectional": True}


def relu(input_dim: int, output_dim: int, dropout: float = 0.0) -> Dict[str, Any]:
    return {
        "input_dim": input_dim,
        "num_layers": 1,
        "hidden_dims": output_dim,
        "activations": "relu",
        "dropout": dropout,
    }


def embedder(words: bool = True, elmo: Any = None) -> Dict[str, Any]:
    embedders: Dict[str, Any] = {}
    if words:
        embedders["tokens"] = {"type": "embedding", "embedding_dim": 5}
    if elmo:
        embedders["elmo"] = {"type": "elmo_token_embedder", **elmo}
    return {"token_embedders": embedders}


def esim(input_dim: int = 5, encoded_dim: int = 4, **arguments: Any) -> Dict[str, Any]:
    linear = {"input_dim": 6, "num_layers": 1, "hidden_dims": 3, "activations": "linear"}
    return {
        "type": "esim",
        "text_field_embedder": embedder(),
        "encoder": lstm(input_dim),
        "matrix_attention": {"type": "dot_product"},
        "projection_feedforward": relu(4 * encoded_dim, 3),
        "inference_encoder": lstm(3),
        "output_feedforward": relu(4 * 4, 6, dropout=0.5),
        "output_logit": linear,
        **arguments,
    }


def bcn(input_dim: int = 5, integrated_dim: int = 4, **arguments: Any) -> Dict[str, Any]:
    maxout = {
        "input_dim": 4 * integrated_dim,
        "num_layers": 2,
        "output_dims": [6, 5],
        "pool_sizes": 2,
        "dropout": [0.3, 0.0],
    }
    return {
        "type": "bcn",
        "text_field_embedder": embedder(),
        "embedding_dropout": 0.25,
        "pre_encode_feedforward": relu(input_dim, 3, dropout=0.25),
        "encoder": lstm(3),
        "integrator": lstm(3 * 4),
        "integrator_dropout": 0.1,
        "output_layer": maxout,
        **arguments,
    }


def cases(bilm: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """Model configurations by name; `bilm` holds `options_file` and `weight_file`."""

    def elmo(number: int) -> Dict[str, Any]:
        return {**bilm, "num_output_representations": number, "dropout": 0.0}

    last = relu(4 * 4, 5)
    last["activations"] = "linear"
    return {
        "esim": esim(),
        "esim without dropout": esim(dropout=0.0),
        "esim, ELMo in the embedder": esim(
            EMBEDDING_DIM, text_field_embedder=embedder(words=False, elmo={**bilm, "dropout": 0.0})
        ),
        "bcn": bcn(),
        "bcn, feed-forward output": bcn(output_layer=last),
        "bcn, ELMo at the input": bcn(5 + EMBEDDING_DIM, elmo=elmo(1), use_input_elmo=True),
        "bcn, ELMo at the output": bcn(
            integrated_dim=4 + EMBEDDING_DIM, elmo=elmo(1), use_integrator_output_elmo=True
        ),
        "bcn, ELMo at both, nothing else": bcn(
            EMBEDDING_DIM,
            4 + EMBEDDING_DIM,
            text_field_embedder=embedder(words=False),
            elmo=elmo(2),
            use_input_elmo=True,
            use_integrator_output_elmo=True,
        ),
    }


NAMES = list(cases({}))


def write_bilm(folder: Path) -> Dict[str, str]:
    bilm = BiLm(SMALLEST)
    fill(bilm)
    save_weights(bilm, folder / "weights.hdf5")
    (folder / "options.json").write_text(json.dumps(options_dict(SMALLEST)), encoding="utf-8")
    return {
        "options_file": str(folder / "options.json"),
        "weight_file": str(folder / "weights.hdf5"),
    }


def fill(module: torch.nn.Module) -> None:
    """Sets what trains to fixed random values, in the order of the names."""
    rng = numpy.random.RandomState(9)  # whose numbers numpy promises not to change
    trained = sorted((n, p) for n, p in module.named_parameters() if p.requires_grad)
    for _, parameter in trained:
        parameter.data = torch.tensor(rng.standard_normal(tuple(parameter.shape))).float()


def build(model_classes: Dict[str, type], params: Dict[str, Any]) -> Model:
    """The model in evaluation mode, with filled weights."""
    params = copy.deepcopy(params)
    model_class = model_classes[params.pop("type")]
    vocab = Vocabulary.from_instances(instances(params, model_class))
    model = model_class.from_params(Params(params), vocab=vocab)
    fill(model)
    return model.eval()


def instances(params: Dict[str, Any], model_class: type) -> List[Instance]:
    """With the indexers that the model's embedders need."""
    keys = set(params["text_field_embedder"]["token_embedders"])
    if "elmo" in params:
        keys.add("elmo")
    known = {"tokens": SingleIdTokenIndexer(), "elmo": ELMoTokenCharactersIndexer()}
    indexers = {key: known[key] for key in sorted(keys)}

    def field(text: str) -> TextField:
        return TextField([Token(word) for word in text.split()], indexers)

    if model_class.__name__ == "ESIM":
        names, rows = ("premise", "hypothesis"), PAIRS
    else:
        names, rows = ("tokens",), TEXTS
    return [
        Instance(
            {
                **{n: field(t) for n, t in zip(names, row, strict=False)},
                "label": LabelField(row[-1]),
            }
        )
        for row in rows
    ]


def outputs(model: Model, params: Dict[str, Any]) -> Dict[str, Any]:
    output = model(**tensors(model, instances(params, type(model))))
    readable = model.make_output_human_readable(dict(output))
    result: Dict[str, Any] = {"label": readable["label"], "names": sorted(model.state_dict())}
    for key, value in output.items():
        result[key] = [round(number, 7) for number in value.detach().flatten().tolist()]
    result["metrics"] = model.get_metrics(reset=True)
    return result


def stored() -> Iterator[str]:
    from allennlp_models.classification import BiattentiveClassificationNetwork
    from allennlp_models.pair_classification import ESIM

    theirs = {"esim": ESIM, "bcn": BiattentiveClassificationNetwork}
    with tempfile.TemporaryDirectory() as folder:
        for name, params in cases(write_bilm(Path(folder))).items():
            found = outputs(build(theirs, params), params)
            yield f"{json.dumps(name)}: {json.dumps(found)}"


if __name__ == "__main__":
    sys.stdout.write("{\n" + ",\n".join(stored()) + "\n}\n")
