"""Probabilities by label name, for predictions."""

from typing import Dict, List

import torch
from allennlp.data import Vocabulary


def named_probabilities(
    probabilities: torch.Tensor, vocab: Vocabulary, namespace: str = "labels"
) -> List[Dict[str, float]]:
    """
    Return a dictionary from label to probability for each row, the most probable label first.
    `probabilities` has the shape `(batch_size, num_labels)`, or `(num_labels,)` for one row.
    """
    names = vocab.get_index_to_token_vocabulary(namespace)
    rows = probabilities.detach().view(-1, probabilities.size(-1))
    ordered = rows.sort(dim=-1, descending=True, stable=True)
    return [
        {names.get(index, str(index)): value for index, value in zip(indices, values)}
        for indices, values in zip(ordered.indices.tolist(), ordered.values.tolist())
    ]
