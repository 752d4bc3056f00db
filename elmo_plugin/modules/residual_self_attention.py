"""Self-attention with a residual connection, in which a token may attend to nothing."""

import torch
from allennlp.common.checks import check_dimensions_match
from allennlp.modules import InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.matrix_attention import LinearMatrixAttention
from allennlp.nn.util import min_value_of_dtype, weighted_sum


class ResidualSelfAttention(torch.nn.Module):
    """
    Self-attention with a residual connection (Clark and Gardner 2018, section 3.1;
    docqa/nn/attention.py, lines 58 to 94, of allenai/document-qa at 2f9fa68). For the input `x` and
    its encoding `h = encoder(x)`:

        S_ij = w_1 . h_i + w_2 . h_j + w_3 . (h_i * h_j) + b, for j other than i
        weight_ij = exp(S_ij) / (sum_j exp(S_ij) + exp(b_0))
        r_i = sum_j weight_ij h_j
        output = x + ReLU(linear [r; h; r * h])

    `b_0` is a learned scalar, initially -1. It lets a token attend to nothing if none matches it.

    # Parameters

    encoder : `Seq2SeqEncoder`
        Computes `h` from `x`.
    dropout : `float`
        Probability of variational dropout on the encoder's input and on its output.

    # Raises

    `ConfigurationError`
        If the encoder's input and output do not have the same width.
    """

    def __init__(self, encoder: Seq2SeqEncoder, dropout: float) -> None:
        super().__init__()
        dim = encoder.get_output_dim()
        check_dimensions_match(
            encoder.get_input_dim(), dim, "residual encoder input dim", "its output dim"
        )
        self.encoder = encoder
        self.similarity = LinearMatrixAttention(dim, dim, "x,y,x*y")
        self.nothing = torch.nn.Parameter(torch.tensor([-1.0]))
        self.merge = torch.nn.Linear(3 * dim, dim)
        self._dropout = InputVariationalDropout(dropout)

    def forward(self, inputs: torch.Tensor, mask: torch.BoolTensor) -> torch.Tensor:
        """
        Return the output of the class's formula, in the shape of `inputs`, `(batch_size,
        num_tokens, input_dim)`. `mask` is true for real tokens.
        """
        encoded = self._dropout(self.encoder(self._dropout(inputs), mask))
        attended = weighted_sum(encoded, self.weights(encoded, mask))
        merged = self.merge(torch.cat([attended, encoded, attended * encoded], dim=-1))
        return inputs + torch.relu(merged)

    def weights(self, encoded: torch.Tensor, mask: torch.BoolTensor) -> torch.Tensor:
        """
        Return the attention weights, shape `(batch_size, num_tokens, num_tokens)`. Each row sums to
        1 minus the weight of attending to nothing. `encoded` is `h` in the class's formula, of
        shape `(batch_size, num_tokens, input_dim)`. `mask` is as in `forward`.
        """
        similarity = self.similarity(encoded, encoded)
        itself = torch.eye(mask.size(1), dtype=torch.bool, device=mask.device)
        similarity = similarity.masked_fill(
            itself | ~mask.unsqueeze(1), min_value_of_dtype(similarity.dtype)
        )
        # A softmax with `b_0` as an additional column equals the formula and is numerically stable.
        nothing = self.nothing.expand(*mask.shape, 1)
        return torch.cat([similarity, nothing], dim=-1).softmax(dim=-1)[..., :-1]
