"""
All-reduce of a sampled softmax's gradients, restricted to the rows (words) that a step uses.

A dense gradient over a large vocabulary would be gigabytes in each step. All processes have the
same negatives, so the rows of negatives are all-reduced as one block. The rows of targets differ
between processes, so they are gathered, each with its word id. Afterwards all processes have
bitwise identical rows.
"""

import torch
import torch.distributed as dist

from elmo_plugin.bilm.pretraining.processes import Processes
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax


def all_reduce_rows(
    softmax: WordSoftmax, negatives: torch.Tensor, processes: Processes, own_weight: float
) -> None:
    """
    Replace the softmax's sparse gradients by their weighted sum over processes.

    The sums are dense unless `softmax.sparse` is set. `negatives` are the word ids of the step's
    negatives, equal in all processes. `own_weight` is the weight of this process: its fraction of
    all batch rows.
    """
    weight, bias = softmax.weight, softmax.bias
    assert weight.grad is not None
    assert bias.grad is not None
    of_weight, of_bias = weight.grad.coalesce(), bias.grad.coalesce()
    own = of_weight.indices()[0]
    rows = torch.cat([of_weight.values(), of_bias.values()], dim=1).mul_(own_weight)
    shared = negatives.to(own.device).unique()
    is_shared = torch.isin(own, shared)
    block = rows.new_zeros(len(shared), rows.shape[1])
    block[torch.searchsorted(shared, own[is_shared])] = rows[is_shared]
    dist.all_reduce(block)
    longest = own.new_tensor([len(own) - int(is_shared.sum())])
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    # Padding is of a word that all have, and adds zero to its row.
    all_ids = _gathered(own[~is_shared], int(longest), int(shared[0]), processes.size)
    all_rows = _gathered(rows[~is_shared], int(longest), 0, processes.size)
    ids = torch.cat([shared, *all_ids]).unique()
    values = rows.new_zeros(len(ids), rows.shape[1])
    # In the same order in all processes, which then get the same bits.
    for some, their_rows in zip([shared, *all_ids], [block, *all_rows]):
        values[torch.searchsorted(ids, some)] += their_rows
    for parameter, part in ((weight, values[:, :-1]), (bias, values[:, -1:])):
        if softmax.sparse:
            parameter.grad = torch.sparse_coo_tensor(
                ids.unsqueeze(0), part, parameter.shape, check_invariants=False
            )
        else:
            parameter.grad = torch.zeros_like(parameter).index_copy_(0, ids, part)


def _gathered(values: torch.Tensor, length: int, padding: int, size: int) -> list[torch.Tensor]:
    """Return the values of all processes, each padded to `length`."""
    padded = values.new_full((length, *values.shape[1:]), padding)
    padded[: len(values)] = values
    everyone = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(everyone, padded)
    return everyone
