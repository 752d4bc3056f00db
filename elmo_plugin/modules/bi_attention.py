"""Bidirectional attention between a passage and a question."""

import torch
from allennlp.modules.matrix_attention import LinearMatrixAttention
from allennlp.nn.util import min_value_of_dtype, weighted_sum


class BiAttention(torch.nn.Module):
    """
    Bidirectional attention of Seo et al. 2017 ("Bidirectional attention flow for machine
    comprehension"), as Clark and Gardner 2018 use it (docqa/nn/attention.py, lines 107 to 143, of
    allenai/document-qa at 2f9fa68). For passage tokens `p_i` and question tokens `q_j`:

        S_ij = w_p . p_i + w_q . q_j + w_d . (p_i * q_j) + b
        c_i = sum_j softmax_j(S_ij) q_j
        s = sum_i softmax_i(max_j S_ij) p_i

    `c_i` is the average of the question tokens, weighted by the attention of `p_i`. `s` is the
    average of the passage tokens, weighted by their similarity to their best question token.

    # Parameters

    encoding_dim : `int`
        Width of the encoded passage and question, `p_i` and `q_j`.
    """

    def __init__(self, encoding_dim: int) -> None:
        super().__init__()
        self.similarity = LinearMatrixAttention(encoding_dim, encoding_dim, "x,y,x*y")
        self._encoding_dim = encoding_dim

    def get_output_dim(self) -> int:
        """Return `4 * encoding_dim`."""
        return 4 * self._encoding_dim

    def forward(
        self,
        passage: torch.Tensor,
        passage_mask: torch.BoolTensor,
        question: torch.Tensor,
        question_mask: torch.BoolTensor,
    ) -> torch.Tensor:
        """
        Return `[p_i; c_i; p_i * c_i; p_i * s]` for each passage token, shape `(batch_size,
        passage_tokens, 4 * encoding_dim)`; see the class. `passage` and `question` have the shape
        `(batch_size, num_tokens, encoding_dim)`. The masks are true for real tokens, of which each
        passage has at least one.
        """
        # Shape: (batch_size, passage_tokens, question_tokens)
        similarity = self.similarity(passage, question)
        least = min_value_of_dtype(similarity.dtype)
        similarity = similarity.masked_fill(~question_mask.unsqueeze(1), least)
        attended_question = weighted_sum(question, similarity.softmax(dim=-1))
        # Shape: (batch_size, passage_tokens)
        strongest = similarity.max(dim=-1).values.masked_fill(~passage_mask, least)
        summary = weighted_sum(passage, strongest.softmax(dim=-1)).unsqueeze(1)
        return torch.cat(
            [passage, attended_question, passage * attended_question, passage * summary], dim=-1
        )
