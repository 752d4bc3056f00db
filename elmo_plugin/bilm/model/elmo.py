"""ELMo: mixes of a biLM's layers."""

from collections.abc import Sequence
from typing import Any

import torch

from elmo_plugin.bilm.model.scalar_mix import ScalarMix


class ElmoMixes(torch.nn.Module):
    """
    ELMo representations: learned mixes of a biLM's layers (Peters et al. 2018, section 3.2).
    Parameter names are those of AllenNLP's `Elmo`.

    # Parameters

    module : `torch.nn.Module`
        The biLM: `forward(inputs, word_inputs)` returns `"activations"` and `"mask"`, and
        `num_layers` says how many there are.
    num_output_representations : `int`, optional (default = `1`)
        How many mixes, each with weights of its own, over one run of the biLM.
    do_layer_norm : `bool`, optional (default = `False`)
        See `ScalarMix`; boundaries are among the tokens it counts, as in AllenNLP.
    dropout : `float`, optional (default = `0.5`)
        Probability of dropping an element of a representation, in training.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Whether outputs keep the rows of the two boundaries.
    scalar_mix_parameters : `Sequence[float] | None`, optional (default = `None`)
        Fixed mix weights before the softmax, one a layer; `None` to learn them.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        num_output_representations: int = 1,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
    ) -> None:
        # Not the next class's constructor: `elmo_plugin.modules.elmo` puts AllenNLP's behind.
        torch.nn.Module.__init__(self)
        self._elmo_lstm = module
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = torch.nn.Dropout(p=dropout)
        self.num_output_representations = num_output_representations
        for index in range(num_output_representations):
            mix = ScalarMix(
                module.num_layers,  # type: ignore[arg-type]
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{index}", mix)

    @property
    def scalar_mixes(self) -> list[ScalarMix]:
        """One a representation."""
        return [getattr(self, f"scalar_mix_{k}") for k in range(self.num_output_representations)]

    def get_output_dim(self) -> int:
        """The biLM's `embedding_dim`."""
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator]

    def reset_states(self) -> None:
        """See `BiLm.reset_states`."""
        self._elmo_lstm.reset_states()  # type: ignore[operator]

    def forward(
        self, inputs: torch.Tensor, word_inputs: torch.Tensor | None = None
    ) -> dict[str, Any]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`; any number of
            dimensions may stand for `batch_size`.
        word_inputs : `torch.Tensor | None`
            Word ids, the same shape without `num_characters`; only with `vocab_to_cache`.

        # Returns

        `dict[str, Any]`
            `"elmo_representations"`: `num_output_representations` tensors of shape
            `(batch_size, num_tokens, embedding_dim)`, and `"mask"`: bool, shape
            `(batch_size, num_tokens)`; `num_tokens + 2` with `keep_sentence_boundaries`.
        """
        leading = inputs.shape[:-2]
        if word_inputs is not None:
            word_inputs = word_inputs.reshape(leading.numel(), word_inputs.shape[-1])
        inputs = inputs.reshape(leading.numel(), *inputs.shape[-2:])
        output = self._layers(inputs, word_inputs)
        mask = output["mask"]
        mixed = [mix(output["activations"], mask) for mix in self.scalar_mixes]
        if not self._keep_sentence_boundaries:
            # A sentence of n tokens is <S>, n tokens, </S>: what remains starts at 1, and as many
            # positions are real as were two further on.
            mask = mask[:, 2:]
            mixed = [(layer[:, 1:-1] * mask.unsqueeze(-1)) for layer in mixed]
        return {
            "elmo_representations": [
                self._dropout(layer).view(*leading, *layer.shape[1:]) for layer in mixed
            ],
            "mask": mask.view(*leading, mask.shape[1]),
        }

    def _layers(self, inputs: torch.Tensor, word_inputs: torch.Tensor | None) -> dict[str, Any]:
        """What the biLM returns."""
        return self._elmo_lstm(inputs, word_inputs)
