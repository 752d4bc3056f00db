"""
Small taggers with fixed weights, and what they compute; as a script, what allennlp-models' tagger
computes with the same weights (in `make peers`' environment):

    .venv-peers/bin/python -m tests.models.crf_tagger_cases > tests/models/crf_tagger.json
"""

import json
import sys
from typing import Any, Dict, List

import torch
from allennlp.common import Params
from allennlp.data import Instance, Vocabulary
from allennlp.data.fields import MetadataField, SequenceLabelField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules import FeedForward, Seq2SeqEncoder, TextFieldEmbedder

from tests.models.batches import tensors

SENTENCES = [
    ("Anna Lee saw Bo in New York City .", "B-PER L-PER O U-PER O B-LOC I-LOC L-LOC O"),
    ("Rome", "U-LOC"),
    ("It rained in Rome", "O O O U-LOC"),
    ("Bo left .", "U-PER O O"),
]
CASES: Dict[str, Dict[str, Any]] = {
    "bioul": {"label_encoding": "BIOUL"},
    "ner.jsonnet": {
        "label_encoding": "BIOUL",
        "constrain_crf_decoding": True,
        "calculate_span_f1": True,
        "include_start_end_transitions": False,
        "dropout": 0.5,
    },
    "verbose": {"label_encoding": "BIOUL", "verbose_metrics": True},
    "no encoding": {},
    "no encoding, verbose": {"verbose_metrics": True},
    "top 3": {"label_encoding": "BIOUL", "top_k": 3},
    "no loss on O": {"label_encoding": "BIOUL", "ignore_loss_on_o_tags": True},
    "emission": {"label_encoding": "BIOUL", "label_weights": {"O": 0.2, "U-PER": 3.0}},
    "transition": {"label_weights": {"O": 0.5}, "weight_strategy": "emission_transition"},
    "lannoy": {"label_weights": {"O": 0.5, "B-LOC": 2.0}, "weight_strategy": "lannoy"},
    "feedforward": {"label_encoding": "BIOUL", "feedforward": True},
}


def instances() -> List[Instance]:
    result = []
    for words, tags in SENTENCES:
        field = TextField(
            [Token(word) for word in words.split()], {"tokens": SingleIdTokenIndexer()}
        )
        fields = {
            "tokens": field,
            "metadata": MetadataField({"words": words.split()}),
            "tags": SequenceLabelField(tags.split(), field),
        }
        result.append(Instance(fields))
    return result


def tagger(model_class: type, arguments: Dict[str, Any]) -> Model:
    """A tagger in evaluation mode whose weights depend on their names and sizes only."""
    vocab = Vocabulary.from_instances(instances())
    arguments = dict(arguments)
    encoder = {"type": "lstm", "input_size": 4, "hidden_size": 3, "bidirectional": True}
    embedder = {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}}
    if arguments.get("feedforward"):
        params = {"input_dim": 6, "num_layers": 1, "hidden_dims": 5, "activations": "tanh"}
        arguments["feedforward"] = FeedForward.from_params(Params(params))
    model = model_class(
        vocab=vocab,
        text_field_embedder=TextFieldEmbedder.from_params(Params(embedder), vocab=vocab),
        encoder=Seq2SeqEncoder.from_params(Params(encoder)),
        **arguments,
    )
    for index, (name, parameter) in enumerate(sorted(model.named_parameters())):
        if "constraint_mask" not in name:
            steps = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.data = torch.sin(steps * (index + 1) + index).view_as(parameter)
    return model.eval()


def outputs(model: Model) -> Dict[str, Any]:
    batch = tensors(model, instances())
    output = model(**batch)
    model.get_metrics(reset=True)
    # So that something is right: the first and the third sentence's gold tags are those predicted.
    for row in (0, 2):
        path = output["tags"][row]
        batch["tags"][row, : len(path)] = torch.tensor(path)
    output = model(**batch)
    result = {
        "loss": output["loss"].item(),
        "logits": [round(value, 6) for value in output["logits"][:, 0].flatten().tolist()],
        "mask": output["mask"].tolist(),
        "words": output["words"],
        "names": sorted(model.state_dict()),
    }
    readable = model.make_output_human_readable(output)
    result.update({key: readable[key] for key in ("tags", "top_k_tags") if key in readable})
    metrics = model.get_metrics(reset=True)
    result["metrics"] = {key: metrics[key] for key in sorted(metrics)}
    return result


if __name__ == "__main__":
    from allennlp_models.tagging import CrfTagger

    cases = [
        f"{json.dumps(name)}: {json.dumps(outputs(tagger(CrfTagger, arguments)))}"
        for name, arguments in CASES.items()
    ]
    sys.stdout.write("{\n" + ",\n".join(cases) + "\n}\n")
