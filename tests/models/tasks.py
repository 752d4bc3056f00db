"""
Small models of four tasks with fixed weights, and what they compute; as a script, what
allennlp-models' classes with AllenNLP's ELMo compute with the same weights (in `make peers`'
environment, perl needed):

    .venv-peers/bin/python -m tests.models.tasks
"""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy
import torch
from allennlp.common import Params
from allennlp.data import Batch, Instance, Vocabulary
from allennlp.data.fields import LabelField, MetadataField, SequenceLabelField, TextField
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer, SingleIdTokenIndexer
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules import TokenEmbedder
from allennlp.modules.token_embedders import ElmoTokenEmbedder

import elmo_plugin.plugin  # noqa: F401 (imports allennlp-models, where it is, before our models)
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.models.bcn import BiattentiveClassificationNetwork
from elmo_plugin.models.crf_tagger import CrfTagger
from elmo_plugin.models.esim import ESIM
from elmo_plugin.models.srl import SemanticRoleLabeler
from tests.tiny_bilm import SMALLEST

WORD_DIM, ENCODED_DIM, EMBEDDING_DIM = 5, 4, SMALLEST.embedding_dim
# Fields of a sentence and its gold annotation; of an SRL sentence also the predicate.
DATA: Dict[str, List[Any]] = {
    "esim": [
        ("A young woman sings in the park .", "Nobody is singing", "contradiction"),
        ("Two dogs run", "Two animals are moving outside the house .", "neutral"),
        ("Rain", "It rains", "entailment"),
        ("A boy eats bread .", "A boy eats", "entailment"),
    ],
    "bcn": [
        ("The walk was long but splendid .", "3"),
        ("Dreadful", "0"),
        ("Their room is rather green", "2"),
        ("a very , very dull book .", "1"),
        ("Brilliant !", "4"),
    ],
    "crf_tagger": [
        ("Anna Lee saw Bo in New York City .", "B-PER L-PER O U-PER O B-LOC I-LOC L-LOC O"),
        ("Rome", "U-LOC"),
        ("It rained in Rome", "O O O U-LOC"),
        ("Bo left .", "U-PER O O"),
    ],
    "srl": [
        ("The dog barks .", 2, "B-ARG0 I-ARG0 B-V O"),
        ("The door , he said , was open .", 4, "B-ARG1 I-ARG1 O B-ARG0 B-V O B-C-ARG1 I-C-ARG1 O"),
        ("Rain !", None, "O O"),
        ("He who sings smiles at the dog .", 2, "B-ARG0 B-R-ARG0 B-V O O O O O"),
        ("She gave him the door .", 1, "B-ARG0 B-V B-ARG2 B-ARG1 I-ARG1 O"),
    ],
}


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
        embedders["tokens"] = {"type": "embedding", "embedding_dim": WORD_DIM}
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


def bcn(input_dim: int = 5, encoded_dim: int = 4, **arguments: Any) -> Dict[str, Any]:
    maxout = {
        "input_dim": 4 * encoded_dim,
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


def ner(input_dim: int = 5, encoded_dim: int = 4, **arguments: Any) -> Dict[str, Any]:
    return {
        "type": "crf_tagger",
        "text_field_embedder": embedder(),
        "encoder": lstm(input_dim),
        **arguments,
    }


def srl(input_dim: int = 5, encoded_dim: int = 4, **arguments: Any) -> Dict[str, Any]:
    return {
        "type": "srl",
        "text_field_embedder": embedder(),
        "encoder": {
            "type": "alternating_lstm",
            "input_size": 3 + input_dim,
            "hidden_size": encoded_dim,
            "num_layers": 3,
            "recurrent_dropout_probability": 0.2,
        },
        "binary_feature_dim": 3,
        **arguments,
    }


KINDS = {"esim": esim, "bcn": bcn, "crf_tagger": ner, "srl": srl}
MODELS = {
    "esim": ESIM,
    "bcn": BiattentiveClassificationNetwork,
    "crf_tagger": CrfTagger,
    "srl": SemanticRoleLabeler,
}
AT_OUTPUT = dict.fromkeys(KINDS, "use_output_elmo") | {"bcn": "use_integrator_output_elmo"}


def placed(
    name: str, bilm: Dict[str, str], at_input: bool, at_output: bool = False, **arguments: Any
) -> Dict[str, Any]:
    """A model with word embeddings, and with ELMo at these places."""
    number = at_input + at_output
    return KINDS[name](
        WORD_DIM + EMBEDDING_DIM * at_input,
        ENCODED_DIM + EMBEDDING_DIM * at_output * (name != "srl"),
        elmo={**bilm, "num_output_representations": number, "dropout": 0.0},
        **{"use_input_elmo": at_input, AT_OUTPUT[name]: at_output, **arguments},
    )


def cases(bilm: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """What is compared with allennlp-models, where ELMo may stand in the embedder or in `bcn`."""
    linear = {**relu(4 * 4, 5), "activations": "linear"}
    in_embedder = embedder(words=False, elmo={**bilm, "dropout": 0.0})
    at_both = placed("bcn", bilm, True, True, text_field_embedder=embedder(words=False))
    at_both["pre_encode_feedforward"]["input_dim"] = EMBEDDING_DIM
    found = {
        "esim": esim(),
        "esim without dropout": esim(dropout=0.0),
        "esim, ELMo in the embedder": esim(EMBEDDING_DIM, text_field_embedder=in_embedder),
        "bcn": bcn(),
        "bcn, feed-forward output": bcn(output_layer=linear),
        "bcn, ELMo at the input": placed("bcn", bilm, True),
        "bcn, ELMo at the output": placed("bcn", bilm, False, True),
        "bcn, ELMo at both, nothing else": at_both,
        "ner, no encoding": ner(),
        "ner, no encoding, verbose": ner(verbose_metrics=True),
        "ner, transition": ner(label_weights={"O": 0.5}, weight_strategy="emission_transition"),
        "ner, lannoy": ner(label_weights={"O": 0.5, "B-LOC": 2.0}, weight_strategy="lannoy"),
        "srl": srl(),
        "srl with dropout and smoothing": srl(embedding_dropout=0.3, label_smoothing=0.1),
        "srl without score": srl(ignore_span_metric=True),
        "srl without script": srl(srl_eval_path=None, ignore_span_metric=True),
    }
    bioul: Dict[str, Dict[str, Any]] = {
        "bioul": {},
        "ner.jsonnet": {
            "constrain_crf_decoding": True,
            "calculate_span_f1": True,
            "include_start_end_transitions": False,
            "dropout": 0.5,
        },
        "verbose": {"verbose_metrics": True},
        "top 3": {"top_k": 3},
        "no loss on O": {"ignore_loss_on_o_tags": True},
        "emission": {"label_weights": {"O": 0.2, "U-PER": 3.0}},
        "feedforward": {"feedforward": relu(4, 5)},
    }
    for name, arguments in bioul.items():
        found[f"ner, {name}"] = ner(label_encoding="BIOUL", **arguments)
    return found


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
    rng = numpy.random.RandomState(16)  # whose numbers numpy promises not to change
    trained = sorted((n, p) for n, p in module.named_parameters() if p.requires_grad)
    for _, parameter in trained:
        parameter.data = torch.tensor(rng.standard_normal(tuple(parameter.shape))).float()


def build(params: Dict[str, Any], classes: Optional[Dict[str, type]] = None) -> Model:
    """The model in evaluation mode, with filled weights."""
    arguments = Params(copy.deepcopy(params))
    cls: Any = (classes or MODELS)[arguments.pop("type")]
    model = cls.from_params(arguments, vocab=Vocabulary.from_instances(instances(params)))
    fill(model)
    return model.eval()


def instances(params: Dict[str, Any]) -> List[Instance]:
    """With the indexers that the model's embedders need."""
    keys = set(params["text_field_embedder"]["token_embedders"])
    if "elmo" in params:
        keys.add("elmo")
    known = {"tokens": SingleIdTokenIndexer(), "elmo": ELMoTokenCharactersIndexer()}
    made = []
    for text, *other, gold in DATA[params["type"]]:
        text, *pair = (
            TextField([Token(word) for word in one.split()], {key: known[key] for key in keys})
            for one in (text, *other)
            if isinstance(one, str)
        )
        fields: Dict[str, Any] = {"tokens": text, "label": LabelField(gold)}
        if pair:
            fields = {"premise": text, "hypothesis": pair[0], "label": LabelField(gold)}
        elif params["type"] in ("crf_tagger", "srl"):
            words, tags = [token.text for token in text.tokens], gold.split()
            metadata: Dict[str, Any] = {"words": words}
            fields = {"tokens": text, "tags": SequenceLabelField(tags, text)}
            for index in other:
                is_verb = [int(position == index) for position in range(len(words))]
                fields["verb_indicator"] = SequenceLabelField(is_verb, text)
                verb = None if index is None else words[index]
                metadata.update(verb_index=index, verb=verb, gold_tags=tags)
            fields["metadata"] = MetadataField(metadata)
        made.append(Instance(fields))
    return made


def tensors(model: Model, chosen: List[Instance]) -> Dict[str, Any]:
    """What `forward` takes."""
    batch = Batch(chosen)
    batch.index_instances(model.vocab)
    return batch.as_tensor_dict()


def outputs(model: Model, params: Dict[str, Any]) -> Dict[str, Any]:
    batch = tensors(model.double(), instances(params))
    if params["type"] == "crf_tagger":  # so that two sentences are right
        predicted = model(**batch)["tags"]
        for row in (0, 2):
            batch["tags"][row, : len(predicted[row])] = torch.tensor(predicted[row])
        model.get_metrics(reset=True)
    with torch.no_grad():
        readable = model.make_output_human_readable(model(**batch))
    found: Dict[str, Any] = {
        key: value.flatten().tolist() if torch.is_tensor(value) else value
        for key, value in readable.items()
    }
    return {**found, "names": sorted(model.state_dict()), "metrics": model.get_metrics(reset=True)}


def losses(model: Model, params: Dict[str, Any]) -> List[float]:
    """Of three training steps with dropout; random numbers are drawn in AllenNLP's order."""
    batch = tensors(model.double(), instances(params))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    torch.manual_seed(0)
    model.train()
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def theirs() -> Dict[str, type]:
    from allennlp_models import classification, pair_classification, structured_prediction, tagging

    return {
        "esim": pair_classification.ESIM,
        "bcn": classification.BiattentiveClassificationNetwork,
        "crf_tagger": tagging.CrfTagger,
        "srl": structured_prediction.SemanticRoleLabeler,
    }


if __name__ == "__main__":
    TokenEmbedder.register("elmo_token_embedder", exist_ok=True)(ElmoTokenEmbedder)
    stored = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, params in cases(write_bilm(Path(folder))).items():
            stored[name] = outputs(build(params, theirs()), params)
            stored[name]["losses"] = losses(build(params, theirs()), params)
    text = json.dumps(stored, default=float)
    rounded = json.loads(text, parse_float=lambda number: round(float(number), 7))
    lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in rounded.items())
    Path(__file__).with_name("allennlp_models.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
