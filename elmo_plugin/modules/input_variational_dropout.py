"""Variational dropout before an encoder, for configs."""

from typing import Optional

import torch
from allennlp.modules import InputVariationalDropout, Seq2SeqEncoder


@Seq2SeqEncoder.register("input_variational_dropout", exist_ok=True)
class InputVariationalDropoutEncoder(Seq2SeqEncoder):
    """
    An encoder with dropout on its input, the same for all tokens of a sentence (Gal and
    Ghahramani 2016).

    Registered as a `Seq2SeqEncoder` with name "input_variational_dropout".

    # Parameters

    encoder : `Seq2SeqEncoder`
    dropout : `float`
        Probability.
    """

    def __init__(self, encoder: Seq2SeqEncoder, dropout: float) -> None:
        super().__init__(encoder.stateful)
        self.encoder = encoder
        self.dropout = InputVariationalDropout(dropout)

    def forward(
        self, inputs: torch.Tensor, mask: Optional[torch.BoolTensor] = None
    ) -> torch.Tensor:
        """
        # Parameters

        inputs : `torch.Tensor`
            Shape `(batch_size, num_tokens, input_dim)`.
        mask : `torch.BoolTensor`, optional (default = `None`)
            Shape `(batch_size, num_tokens)`.

        # Returns

        `torch.Tensor`
            The encoder's, shape `(batch_size, num_tokens, output_dim)`.
        """
        return self.encoder(self.dropout(inputs), mask)

    def get_input_dim(self) -> int:
        """The encoder's."""
        return self.encoder.get_input_dim()

    def get_output_dim(self) -> int:
        """The encoder's."""
        return self.encoder.get_output_dim()

    def is_bidirectional(self) -> bool:
        """The encoder's."""
        return self.encoder.is_bidirectional()
