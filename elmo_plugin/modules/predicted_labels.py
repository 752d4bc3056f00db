"""Names of the labels that a classifier predicts."""

from typing import Any, Dict

import torch
from allennlp.data import Vocabulary


def add_labels(
    output: Dict[str, Any], probabilities: torch.Tensor, vocab: Vocabulary
) -> Dict[str, Any]:
    """
    Add two lists with one entry per row of `probabilities` to a model's output: `label`, the most
    probable label, and `probabilities`, a dictionary from label to probability, the most probable
    label first. `probabilities` has the shape `(batch_size, num_labels)`, or `(num_labels,)`.
    """
    names = vocab.get_index_to_token_vocabulary("labels")
    rows = probabilities.detach().view(-1, probabilities.size(-1))
    ordered = rows.sort(dim=-1, descending=True, stable=True)
    named = [
        {names.get(index, str(index)): value for index, value in zip(indices, values)}
        for indices, values in zip(ordered.indices.tolist(), ordered.values.tolist())
    ]
    output["label"] = [next(iter(labels)) for labels in named]
    output["probabilities"] = named
    return output
