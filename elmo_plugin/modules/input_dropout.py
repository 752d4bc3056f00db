"""Dropout before a `Seq2VecEncoder`, for configs."""

from typing import Optional

import torch
from allennlp.modules import Seq2VecEncoder


@Seq2VecEncoder.register("input_dropout", exist_ok=True)
class InputDropoutEncoder(Seq2VecEncoder):
    """
    An encoder with dropout on the elements of its input. document-qa drops elements of character
    embeddings before its convolution; AllenNLP's `character_encoding` only drops what comes out.

    Registered as a `Seq2VecEncoder` with name "input_dropout".

    # Parameters

    encoder : `Seq2VecEncoder`
    dropout : `float`
        Probability.
    """

    def __init__(self, encoder: Seq2VecEncoder, dropout: float) -> None:
        super().__init__(encoder.stateful)
        self.encoder = encoder
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, inputs: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """
        # Parameters

        inputs : `torch.Tensor`
            Shape `(batch_size, sequence_length, input_dim)`.
        mask : `torch.Tensor`, optional (default = `None`)
            Shape `(batch_size, sequence_length)`.

        # Returns

        `torch.Tensor`
            The encoder's, shape `(batch_size, output_dim)`.
        """
        return self.encoder(self.dropout(inputs), mask)

    def get_input_dim(self) -> int:
        """The encoder's."""
        return self.encoder.get_input_dim()

    def get_output_dim(self) -> int:
        """The encoder's."""
        return self.encoder.get_output_dim()
