"""Encoders that apply dropout to their input, which AllenNLP's encoders do not."""

from typing import Any, Optional

import torch
from allennlp.modules import InputVariationalDropout, Seq2SeqEncoder, Seq2VecEncoder


class _DroppedInput:
    """Mixin for encoders that run `self.encoder` on `self.dropout(inputs)`."""

    encoder: Any
    dropout: torch.nn.Module

    def forward(self, inputs: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        return self.encoder(self.dropout(inputs), mask)

    def get_input_dim(self) -> int:
        return self.encoder.get_input_dim()

    def get_output_dim(self) -> int:
        return self.encoder.get_output_dim()


@Seq2VecEncoder.register("input_dropout", exist_ok=True)
class InputDropoutEncoder(_DroppedInput, Seq2VecEncoder):
    """
    Encoder that applies elementwise dropout to its input. Clark and Gardner 2018, for example,
    apply it to character embeddings before the convolution.

    Registered as a `Seq2VecEncoder` with name "input_dropout".

    # Parameters

    encoder : `Seq2VecEncoder`
    dropout : `float`
        Dropout probability.
    """

    def __init__(self, encoder: Seq2VecEncoder, dropout: float) -> None:
        super().__init__(encoder.stateful)
        self.encoder = encoder
        self.dropout = torch.nn.Dropout(dropout)


@Seq2SeqEncoder.register("input_variational_dropout", exist_ok=True)
class InputVariationalDropoutEncoder(_DroppedInput, Seq2SeqEncoder):
    """
    Encoder that applies variational dropout to its input: one mask for all tokens of a sentence
    (Gal and Ghahramani 2016).

    Registered as a `Seq2SeqEncoder` with name "input_variational_dropout".

    # Parameters

    encoder : `Seq2SeqEncoder`
    dropout : `float`
        Dropout probability.
    """

    def __init__(self, encoder: Seq2SeqEncoder, dropout: float) -> None:
        super().__init__(encoder.stateful)
        self.encoder = encoder
        self.dropout = InputVariationalDropout(dropout)

    def is_bidirectional(self) -> bool:
        """Return whether `encoder` is bidirectional."""
        return self.encoder.is_bidirectional()
