"""Concatenate ELMo to a task model's input, to its encoder's output, or to both."""

from typing import Any, Optional, Tuple, Union

import torch
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.data import TextFieldTensors
from allennlp.modules import TextFieldEmbedder

from elmo_plugin.data.indexer import check_elmo_tensors
from elmo_plugin.modules.elmo import Elmo


class ElmoPlacement(torch.nn.Module):
    """
    Embeds a model's text and concatenates ELMo's vectors where the model's flags say (Peters et al.
    2018, table 3). It registers no parameters. The model keeps `elmo` and `text_field_embedder` as
    its own submodules, since the names in its state dict depend on that.

    `text_field_embedder` embeds the output of the token indexers other than `elmo`. `flags` are the
    model's `use_*_elmo` arguments by name. The first places ELMo at the model's input; the second,
    if there is one, at the encoder's output. As many must be true as `elmo` has output
    representations, none without it, else a `ConfigurationError` is raised.
    """

    def __init__(
        self, elmo: Optional[Elmo], text_field_embedder: TextFieldEmbedder, **flags: bool
    ) -> None:
        super().__init__()
        _check(elmo, text_field_embedder, **flags)
        self._at_input, self._at_output = (*flags.values(), False)[:2]
        self.text_dim = text_field_embedder.get_output_dim()
        self._elmo_dim = 0 if elmo is None else elmo.get_output_dim()
        # A tuple hides them: as submodules, they would appear twice in the model's state dict.
        self._embedders: Tuple[Any, Any] = (text_field_embedder, elmo)
        self.is_interpretable_layer = self._at_input
        """
        True if AllenNLP's interpreters must hook this module instead of the text field embedder,
        whose output is not the whole input if ELMo is placed there. `coref` may set it to true too.
        """

    @property
    def input_dim(self) -> int:
        """Width of the model's input, including ELMo if it is concatenated there."""
        return self.text_dim + self._elmo_dim * self._at_input

    def output_dim(self, encoder: Any) -> int:
        """Return the width of `encoder`'s output, including ELMo if it is concatenated there."""
        return encoder.get_output_dim() + self._elmo_dim * self._at_output

    def check_input_of(self, layer: Any, name: str) -> None:
        """Raise a `ConfigurationError` if the input width of `layer` is not `input_dim`."""
        check_dimensions_match(
            self.input_dim,
            layer.get_input_dim(),
            "text field embedding dim (with ELMo, if at the input)",
            f"{name} input dim",
        )

    def embed(
        self, tokens: TextFieldTensors, *embedders: Any
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """
        Embed one text field: run the biLM on the token indexer `elmo` and the text field embedder
        on the others. `embedders` are the model's present text field embedder and `elmo`, by
        default those of the last call.

        Return two values: the model's input, shape `(batch_size, num_tokens, input_dim)`, and the
        ELMo vectors to concatenate to the encoder's output, shape `(batch_size, num_tokens,
        embedding_dim)`. The second is `None` if ELMo is not placed at the encoder's output.

        Raise a `ConfigurationError` if the model has `elmo`, but there is no token indexer `elmo`
        of type `elmo_characters`; or if it is the only one, but ELMo is not placed at the input.
        """
        self._embedders = text_field_embedder, elmo = embedders or self._embedders
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

    def forward(self, inputs: Union[torch.Tensor, TextFieldTensors]) -> torch.Tensor:
        """
        Return the model's input, shape `(batch_size, num_tokens, input_dim)`: the first result of
        `embed` unchanged, or a text field embedded, as AllenNLP's `Hotflip` passes it. AllenNLP's
        interpreters hook this call to read and change the input.
        """
        return inputs if torch.is_tensor(inputs) else self.embed(inputs)[0]

    @staticmethod
    def concatenate(encoded: torch.Tensor, output_elmo: Optional[torch.Tensor]) -> torch.Tensor:
        """Return the encoder's output with the second result of `embed`, if that is given."""
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
