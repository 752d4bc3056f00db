"""Loss of a sampled softmax, with its gradient written by hand."""

from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.compiled_training import log_sum_exp
from elmo_plugin.bilm.kernels.gpu import lstm_fused
from elmo_plugin.bilm.kernels.gradients import hand_written, rounded

# More candidates than this do not fit the registers of a Triton program.
MOST_CANDIDATES = 1 << 15


def sampled_losses(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    candidates: torch.Tensor,
    true_logits: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    training_dtype: str | None,
    fused: bool,
    num_parts: int = 1,
) -> list[torch.Tensor]:
    """
    Return the mean cross-entropy `log(exp(true) + sum(exp(logits))) - true` of each of `num_parts`
    equal parts of the rows. A candidate that equals the row's target is left out of the sum.

    `outputs`, `targets`, `true_logits`: shapes `(num_rows, projection_dim)`, `(num_rows,)` and
    `(num_rows,)`, the last with the logit of each row's target.
    `candidates`: word ids, shape `(num_candidates,)`. Repeated words count each time.
    `weight`, `bias`: softmax rows of the candidates.
    `fused`: whether the Triton kernel computes the losses, see `fuses`.
    """
    if fused:
        means = _FusedLosses.apply(
            outputs, weight, bias, true_logits, targets, candidates, training_dtype, num_parts
        )
        return list(means.unbind())
    others = log_sum_exp(outputs, weight, bias, candidates, targets, training_dtype)
    # log(1 + e^x), which is x to the last bit of float64 above the threshold.
    losses = functional.softplus(others - true_logits, threshold=40)
    return [part.mean() for part in losses.chunk(num_parts)]


def fuses(like: torch.Tensor, num_candidates: int, training_dtype: str | None) -> bool:
    """Return whether the Triton kernel runs for weights with the device and dtype of `like`."""
    usable = lstm_fused.usable(like, training_dtype, training=True)
    return usable and num_candidates <= MOST_CANDIDATES


class _FusedLosses(torch.autograd.Function):
    """Mean losses by a Triton kernel, which overwrites the logits with their gradients."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        outputs, weight, bias, true_logits, targets, candidates, dtype, num_parts = arguments
        rows, factor = rounded(outputs, dtype), rounded(weight, dtype)
        shares = rows @ factor.t()
        losses, grad_true = torch.empty_like(true_logits), torch.empty_like(true_logits)
        lstm_fused.kernel("sampled_softmax")[(len(rows),)](
            shares, bias, candidates, true_logits, targets, losses, grad_true, 1.0,
            NUM_CANDIDATES=len(candidates), BLOCK=1 << (len(candidates) - 1).bit_length(),
            num_warps=8,
        )  # fmt: skip
        ctx.save_for_backward(rows, factor, shares, grad_true)
        ctx.dtype = outputs.dtype
        return losses.view(num_parts, -1).mean(dim=1)

    @staticmethod
    @hand_written()
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        rows, factor, shares, grad_true = ctx.saved_tensors
        dtype, size = ctx.dtype, len(rows) // len(gradient)
        by_part = gradient / size
        scale = by_part.repeat_interleave(size, output_size=len(rows)).unsqueeze(1)
        # Scale the rows, which are narrow, and not their shares of all candidates.
        scaled = (rows * scale).to(rows.dtype)
        sums = shares.unflatten(0, (-1, size)).sum(dim=1, dtype=dtype)
        return (
            (shares @ factor).to(dtype) * scale,
            (shares.t() @ scaled).to(dtype),
            by_part @ sums,
            grad_true * scale.squeeze(1),
            *[None] * 4,
        )
