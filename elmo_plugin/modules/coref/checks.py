"""What the arguments of `coref` must be."""

from typing import List, Optional

from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.modules import FeedForward, Seq2SeqEncoder


def check_positive(**numbers: Optional[float]) -> None:
    """
    # Parameters

    numbers : `float`, optional
        Arguments by name.

    # Raises

    `ConfigurationError`
        If one is given and not more than 0.
    """
    for name, number in numbers.items():
        if number is not None and number <= 0:
            raise ConfigurationError(f"found {name} {number}, expected more than 0")


def check_genres(genres: Optional[List[str]]) -> None:
    """
    # Parameters

    genres : `List[str]`, optional

    # Raises

    `ConfigurationError`
        If there are none, or one is empty or stands there twice.
    """
    if genres is not None and not (genres and all(genres) and len(set(genres)) == len(genres)):
        raise ConfigurationError(f"found genres {genres}, expected different names, none empty")


def check_dimensions(
    input_dim: int,
    embedded_dim: int,
    context_layer: Seq2SeqEncoder,
    mention_feedforward: FeedForward,
    antecedent_feedforward: FeedForward,
    feature_size: int,
    num_features: int,
) -> None:
    """
    # Parameters

    input_dim : `int`
        Of a token with ELMo, if that is at the input.
    embedded_dim : `int`
        Of a token without ELMo.
    context_layer : `Seq2SeqEncoder`
    mention_feedforward : `FeedForward`
    antecedent_feedforward : `FeedForward`
    feature_size : `int`
        Of one embedded feature.
    num_features : `int`
        How many features a pair has.

    # Raises

    `ConfigurationError`
        If an input dimension is not what comes before.
    """
    check_dimensions_match(
        input_dim,
        context_layer.get_input_dim(),
        "text field embedding dim (with ELMo, if at the input)",
        "context_layer input dim",
    )
    span_dim = 2 * context_layer.get_output_dim() + feature_size + embedded_dim
    check_dimensions_match(
        span_dim,
        mention_feedforward.get_input_dim(),
        "span dim (2 context_layer output dims, feature_size, text field embedding dim)",
        "mention_feedforward input dim",
    )
    check_dimensions_match(
        3 * span_dim + num_features * feature_size,
        antecedent_feedforward.get_input_dim(),
        f"pair dim (3 span dims, {num_features} feature_size)",
        "antecedent_feedforward input dim",
    )
