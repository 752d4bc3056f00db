"""Loss of a sampled softmax, with its gradient written by hand."""

import math
from typing import Any

import torch

from elmo_plugin.bilm.kernels import lstm_fused
from elmo_plugin.bilm.kernels.compiled_training import training_linear
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
) -> torch.Tensor:
    """
    Return the cross-entropy of each row, `log(exp(true) + sum(exp(logits))) - true`. A candidate
    that equals the row's target is left out of the sum.

    # Parameters

    outputs, targets : `torch.Tensor`
        Shapes `(num_rows, projection_dim)` and `(num_rows,)`.
    candidates : `torch.Tensor`
        Word ids, shape `(num_candidates,)`. Repeated words count each time.
    true_logits : `torch.Tensor`
        Logit of each row's target, shape `(num_rows,)`.
    weight, bias : `torch.Tensor`
        Softmax rows of the candidates, shapes `(num_candidates, projection_dim)` and
        `(num_candidates,)`.
    training_dtype : `str | None`
        See `Precision`.
    fused : `bool`
        Whether the Triton kernel computes the losses, see `fuses`.
    """
    if fused:
        return _FusedLosses.apply(
            outputs, weight, bias, true_logits, targets, candidates, training_dtype
        )
    logits = training_linear(outputs, weight, bias, training_dtype)
    order = candidates.argsort()
    ordered = candidates[order]
    if len(candidates) > 1 and bool((ordered[1:] == ordered[:-1]).any()):
        logits = logits.masked_fill(targets.unsqueeze(1) == candidates, -math.inf)
        hits = torch.full_like(targets, -1)
    else:
        places = torch.searchsorted(ordered, targets).clamp_(max=len(candidates) - 1)
        hits = torch.where(ordered[places] == targets, order[places], -1)
    return _Losses.apply(true_logits, logits, hits)


def fuses(like: torch.Tensor, num_candidates: int, training_dtype: str | None) -> bool:
    """Return whether the Triton kernel runs for weights with the device and dtype of `like`."""
    product_dtype = getattr(torch, training_dtype) if training_dtype else like.dtype
    return (
        like.is_cuda
        and num_candidates <= MOST_CANDIDATES
        and lstm_fused.usable(like, product_dtype, training=True)
    )


class _Losses(torch.autograd.Function):
    """
    Losses from true and sampled logits. `hits` has, for each row, the column of the candidate that
    equals the target, or -1 if there is none. The sampled logits are overwritten to save memory and
    time.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: torch.Tensor) -> torch.Tensor:
        true_logits, logits, hits = arguments
        columns = hits.clamp(min=0).unsqueeze(1)
        kept = logits.gather(1, columns).masked_fill_(hits.unsqueeze(1) >= 0, -math.inf)
        logits.scatter_(1, columns, kept)
        largest = torch.maximum(logits.amax(dim=1), true_logits)
        exponentials = logits.sub_(largest.unsqueeze(1)).exp_()
        true_share = (true_logits - largest).exp_()
        sums = exponentials.sum(dim=1).add_(true_share)
        ctx.save_for_backward(exponentials, true_share, sums)
        return sums.log() + largest - true_logits

    @staticmethod
    @hand_written()
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        exponentials, true_share, sums = ctx.saved_tensors
        scale = gradient / sums
        return true_share * scale - gradient, exponentials.mul_(scale.unsqueeze(1)), None


class _FusedLosses(torch.autograd.Function):
    """Losses by a Triton kernel, which overwrites the logits with their gradients."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        outputs, weight, bias, true_logits, targets, candidates, training_dtype = arguments
        rows, factor = rounded(outputs, training_dtype), rounded(weight, training_dtype)
        shares = rows @ factor.t()
        losses, grad_true = torch.empty_like(true_logits), torch.empty_like(true_logits)
        lstm_fused.kernel("sampled_softmax")[(len(rows),)](
            shares, bias, candidates, true_logits, targets, losses, grad_true, 1.0,
            NUM_CANDIDATES=len(candidates), BLOCK=1 << (len(candidates) - 1).bit_length(),
            num_warps=8,
        )  # fmt: skip
        ctx.save_for_backward(rows, factor, shares, grad_true)
        ctx.dtype = outputs.dtype
        return losses

    @staticmethod
    @hand_written()
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        rows, factor, shares, grad_true = ctx.saved_tensors
        dtype, scale = ctx.dtype, gradient.unsqueeze(1)
        # Scale the rows, which are narrow, and not their shares of all candidates.
        scaled = (rows * scale).to(rows.dtype)
        return (
            (shares @ factor).to(dtype) * scale,
            (shares.t() @ scaled).to(dtype),
            (shares.t() @ scale.to(rows.dtype)).squeeze(1).to(dtype),
            grad_true * gradient,
            *[None] * 3,
        )
