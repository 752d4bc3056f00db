"""
The gradient of a sampled softmax, of all processes together, by the rows that a step touches.

A dense gradient of 793,471 words would be 1.6 GB a step. All processes have the same negatives, so
their rows are summed as one block; rows of targets, which differ, are sent with their ids. Each
process then has the same rows with the same bits, and makes the same update.
"""

import torch
import torch.distributed as dist

from elmo_plugin.bilm.training.processes import Processes
from elmo_plugin.bilm.training.softmax import WordSoftmax


def sum_of_rows(
    softmax: WordSoftmax, negatives: torch.Tensor, processes: Processes, own_weight: float
) -> None:
    """
    Puts the sum over processes in place of the softmax's gradients.

    # Parameters

    softmax : `WordSoftmax`
        With sparse gradients of this process. They stay so where it is `sparse`, else dense ones
        are made of them.
    negatives : `torch.Tensor`
        Ids of the step's negatives, the same in all processes.
    processes : `Processes`
    own_weight : `float`
        What this process's gradients are multiplied with.
    """
    weight, bias = softmax.weight, softmax.bias
    assert weight.grad is not None
    assert bias.grad is not None
    of_weight, of_bias = weight.grad.coalesce(), bias.grad.coalesce()
    ids = of_weight.indices()[0]
    rows = torch.cat([of_weight.values(), of_bias.values()], dim=1).mul_(own_weight)
    shared = negatives.to(ids.device).unique()
    places = torch.searchsorted(shared, ids).clamp_(max=len(shared) - 1)
    is_shared = shared[places] == ids
    block = rows.new_zeros(len(shared), rows.shape[1])
    block[places[is_shared]] = rows[is_shared]
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
    """All processes' distinct ids, and the sums of their rows."""
    lengths = [ids.new_zeros(1) for _ in range(processes.size)]
    dist.all_gather(lengths, ids.new_tensor([len(ids)]))
    counts = torch.cat(lengths).tolist()
    # An id and its row in one piece, and as many pieces as the longest has.
    own = torch.cat([ids.unsqueeze(1).view(torch.uint8), rows.contiguous().view(torch.uint8)], 1)
    own = torch.nn.functional.pad(own, (0, 0, 0, max(counts) - len(ids)))
    everyone = [torch.empty_like(own) for _ in counts]
    dist.all_gather(everyone, own)
    pieces = [one[:count] for one, count in zip(everyone, counts)]
    # Flat: of no row and of one the strides stay those of the whole pieces.
    all_ids = torch.cat([one[:, : ids.itemsize].flatten().view(ids.dtype) for one in pieces])
    found, places = all_ids.unique(return_inverse=True)
    summed = rows.new_zeros(len(found), rows.shape[1])
    # A process's ids are distinct, so the order of the sums is that of the processes.
    for place, one in zip(places.split(counts), pieces):
        own_rows = one[:, ids.itemsize :].flatten().view(rows.dtype)
        summed[place] += own_rows.view(-1, rows.shape[1])
    return found, summed
