"""Where a task model concatenates ELMo: to its inputs, to its encoder's outputs, or to both."""

from typing import Any, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.modules import TextFieldEmbedder

from elmo_plugin.data.indexer import check_elmo_tensors
from elmo_plugin.modules.elmo import Elmo


class ElmoPlacement:
    """
    Where a model's ELMo stands. The model keeps `elmo` and `text_field_embedder` themselves, under
    the names that its parameters have, and hands them in; this keeps what its flags say.

    # Parameters

    elmo : `Elmo`, optional
        The model's `elmo` argument.
    text_field_embedder : `TextFieldEmbedder`
        Embeds the other inputs; must not know the key `elmo` if `elmo` is given.
    flags : `bool`
        The model's `use_*_elmo` arguments by name: that for the input, then, if it has one, that
        for the output of its encoder.

    # Raises

    `ConfigurationError`
        If a flag is on without `elmo`, if `elmo` is given and no flag is on, if its
        `num_output_representations` is not the number of flags that are on, or if
        `text_field_embedder` embeds `elmo` too.
    """

    def __init__(
        self, elmo: Optional[Elmo], text_field_embedder: TextFieldEmbedder, **flags: bool
    ) -> None:
        _check(elmo, text_field_embedder, **flags)
        self._at_input, self._at_output = (*flags.values(), False)[:2]
        self._text_dim = text_field_embedder.get_output_dim()
        self._elmo_dim = 0 if elmo is None else elmo.get_output_dim()

    @property
    def input_dim(self) -> int:
        """The width of what `embed` gives: the embedder's, and ELMo's if it is at the input."""
        return self._text_dim + self._elmo_dim * self._at_input

    def output_dim(self, encoder: Any) -> int:
        """
        # Parameters

        encoder : `Any`
            Something with `get_output_dim()`.

        # Returns

        `int`
            The width of what `concatenate` makes of its output.
        """
        return encoder.get_output_dim() + self._elmo_dim * self._at_output

    def embed(
        self, tokens: TextFieldTensors, text_field_embedder: TextFieldEmbedder, elmo: Optional[Elmo]
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """
        Embeds one text field whose ELMo characters are under `elmo`, running the biLM once.

        # Parameters

        tokens : `TextFieldTensors`
            Character ids under `tokens["elmo"]["elmo_tokens"]`, shape
            `(batch_size, num_tokens, num_characters)`; all else goes to `text_field_embedder`. With
            ELMo alone it is not called. Without `elmo` it takes everything.
        text_field_embedder : `TextFieldEmbedder`
        elmo : `Elmo`, optional
            Those that the model was made with. Its representations are taken in the order input,
            output.

        # Returns

        `Tuple[torch.Tensor, Optional[torch.Tensor]]`
            The encoder's input, shape `(batch_size, num_tokens, input_dim)`, and what to
            `concatenate` to its output, shape `(batch_size, num_tokens, embedding_dim)`, or `None`.

        # Raises

        `ConfigurationError`
            If `tokens` has no key `elmo`, or one of another indexer, or nothing but `elmo` and it
            is not used at the input.
        """
        if elmo is None:
            return text_field_embedder(tokens), None
        if "elmo" not in tokens:
            raise ConfigurationError(
                f"found the token indexers {sorted(tokens)}, expected one named 'elmo' of type "
                f"elmo_characters, since the model has elmo"
            )
        check_elmo_tensors(tokens["elmo"])
        others = {name: value for name, value in tokens.items() if name != "elmo"}
        if not others and not self._at_input:
            raise ConfigurationError(
                "found no token indexer but 'elmo', which is not used at the input; expected "
                "another"
            )
        embedded = [text_field_embedder(others)] if others else []
        representations = elmo(tokens["elmo"]["elmo_tokens"])["elmo_representations"]
        if self._at_input:
            embedded.append(representations[0])
        return torch.cat(embedded, dim=-1), representations[-1] if self._at_output else None

    @staticmethod
    def concatenate(encoded: torch.Tensor, output_elmo: Optional[torch.Tensor]) -> torch.Tensor:
        """
        # Parameters

        encoded : `torch.Tensor`
            The encoder's output, shape `(batch_size, num_tokens, encoder output dim)`.
        output_elmo : `torch.Tensor`, optional
            What `embed` gave for it.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_tokens, output_dim)`.
        """
        return encoded if output_elmo is None else torch.cat([encoded, output_elmo], dim=-1)


def _check(elmo: Optional[Elmo], text_field_embedder: TextFieldEmbedder, **flags: bool) -> None:
    shown = ", ".join(f"{name}: {str(value).lower()}" for name, value in flags.items())
    num_placements = sum(flags.values())
    if elmo is None:
        if num_placements:
            raise ConfigurationError(f"found {shown} without elmo, expected the model's elmo")
        return
    if num_placements == 0:
        raise ConfigurationError(f"found elmo and {shown}, expected at least one of them true")
    if "elmo" in getattr(text_field_embedder, "_token_embedders", {}):
        raise ConfigurationError(
            f"found the key 'elmo' in text_field_embedder, expected it in the model's elmo only, "
            f"placed by {', '.join(flags)}"
        )
    if elmo.num_output_representations != num_placements:
        raise ConfigurationError(
            f"found num_output_representations: {elmo.num_output_representations} and {shown}, "
            f"expected as many representations as flags are true, {num_placements}"
        )
