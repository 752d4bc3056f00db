"""Build AllenNLP's conditional random field, with or without label weights."""

from typing import Any, Dict, List, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.modules.conditional_random_field import (
    ConditionalRandomField,
    ConditionalRandomFieldWeightEmission,
    ConditionalRandomFieldWeightLannoy,
    ConditionalRandomFieldWeightTrans,
)

WEIGHTED_CRFS = {
    "emission": ConditionalRandomFieldWeightEmission,
    "emission_transition": ConditionalRandomFieldWeightTrans,
    "lannoy": ConditionalRandomFieldWeightLannoy,
}


def weights_by_index(
    label_weights: Dict[str, float], vocab: Vocabulary, label_namespace: str
) -> List[float]:
    """
    Return each label's weight, in the vocabulary's order; 1 for a label that `label_weights` lacks.

    # Raises

    `ConfigurationError`
        If a label of `label_weights` is not in the vocabulary.
    """
    label_to_index = vocab.get_token_to_index_vocabulary(label_namespace)
    weights = [1.0] * len(label_to_index)
    for label, weight in label_weights.items():
        if label not in label_to_index:
            raise ConfigurationError(
                f"label_weights names {label!r}, which is not in the vocabulary's namespace "
                f"{label_namespace!r}; expected one of {', '.join(label_to_index)}"
            )
        weights[label_to_index[label]] = weight
    return weights


def build_crf(
    num_tags: int,
    constraints: Any,
    include_start_end_transitions: bool,
    weights: Optional[List[float]],
    weight_strategy: Optional[str],
) -> ConditionalRandomField:
    """
    Build AllenNLP's `ConditionalRandomField`, which allows only the tag transitions in
    `constraints`, or all if it is `None`. If `weights` is given (see `weights_by_index`), build the
    subclass that `WEIGHTED_CRFS` names by `weight_strategy` (default: `emission`).

    # Raises

    `ConfigurationError`
        If `weight_strategy` is unknown, or is given without `weights`.
    """
    if weights is None:
        if weight_strategy is not None:
            raise ConfigurationError(
                f"found weight_strategy {weight_strategy} without label_weights; "
                "expected both or neither"
            )
        return ConditionalRandomField(num_tags, constraints, include_start_end_transitions)
    weight_strategy = weight_strategy or "emission"
    if weight_strategy not in WEIGHTED_CRFS:
        raise ConfigurationError(
            f"unknown weight_strategy: {weight_strategy}; expected {', '.join(WEIGHTED_CRFS)}"
        )
    return WEIGHTED_CRFS[weight_strategy](
        num_tags, weights, constraints, include_start_end_transitions
    )
