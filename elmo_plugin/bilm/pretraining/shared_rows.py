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
    ids = of_weight.indices()[0]
    rows = torch.cat([of_weight.values(), of_bias.values()], dim=1).mul_(own_weight)
    shared = negatives.to(ids.device).unique()
    indices = torch.searchsorted(shared, ids).clamp_(max=len(shared) - 1)
    is_shared = shared[indices] == ids
    block = rows.new_zeros(len(shared), rows.shape[1])
    block[indices[is_shared]] = rows[is_shared]
    dist.all_reduce(block)
    others, summed = _gathered(ids[~is_shared], rows[~is_shared], processes)
    ids, rows = torch.cat([shared, others]), torch.cat([block, summed])
    for parameter, values in ((weight, rows[:, :-1]), (bias, rows[:, -1:])):
        if softmax.sparse:
            parameter.grad = torch.sparse_coo_tensor(
                ids.unsqueeze(0), values, parameter.shape, check_invariants=False
            )
        else:
            parameter.grad = torch.zeros_like(parameter).index_copy_(0, ids, values)


def _gathered(
    ids: torch.Tensor, rows: torch.Tensor, processes: Processes
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Gather word ids and gradient rows of all processes; return the distinct ids and the sum of each
    id's rows.
    """
    lengths = [ids.new_zeros(1) for _ in range(processes.size)]
    dist.all_gather(lengths, ids.new_tensor([len(ids)]))
    counts = torch.cat(lengths).tolist()
    # Join each id and its row as bytes; pad to the largest number of rows in any process.
    own = torch.cat([ids.unsqueeze(1).view(torch.uint8), rows.contiguous().view(torch.uint8)], 1)
    own = torch.nn.functional.pad(own, (0, 0, 0, max(counts) - len(ids)))
    everyone = [torch.empty_like(own) for _ in counts]
    dist.all_gather(everyone, own)
    pieces = [one[:count] for one, count in zip(everyone, counts)]
    # `view` to another dtype fails on the strides of zero or one row, so flatten first.
    all_ids = torch.cat([one[:, : ids.itemsize].flatten().view(ids.dtype) for one in pieces])
    found, indices = all_ids.unique(return_inverse=True)
    summed = rows.new_zeros(len(found), rows.shape[1])
    # The ids of one process are distinct, so each addition is deterministic. The loop adds the
    # pieces in the same order in all processes, which then get the same bits.
    for index, one in zip(indices.split(counts), pieces):
        own_rows = one[:, ids.itemsize :].flatten().view(rows.dtype)
        summed[index] += own_rows.view(-1, rows.shape[1])
    return found, summed
