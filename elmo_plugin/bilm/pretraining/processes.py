"""Processes of a distributed run: their shares of the text streams, and their communication."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from elmo_plugin.bilm.pretraining.softmax import WordSoftmax

# Maximum number of gradient elements in one all-reduce, which needs a flat copy of them.
BUCKET = 2**25
# How long other processes may wait while process 0 counts words or writes files.
LONG_WAIT = timedelta(days=2)


class Processes:
    """
    Processes of torch.distributed's default group, or a single process if it is not initialised.
    `device` is that of this process.
    """

    def __init__(self, device: torch.device) -> None:
        distributed = dist.is_available() and dist.is_initialized()
        self.device = device
        self.rank = dist.get_rank() if distributed else 0
        self.size = dist.get_world_size() if distributed else 1
        # Process group for long waits. A dead process breaks gloo's TCP connections at once, so a
        # long timeout is safe here, and the default group can have a short one.
        self._patient = dist.new_group(backend="gloo", timeout=LONG_WAIT) if distributed else None

    def share(self, num_rows: int) -> range:
        """Return the range of batch rows that this process computes, out of `num_rows` in total."""
        return range(self.rank * num_rows // self.size, (self.rank + 1) * num_rows // self.size)

    def total(self, *values: float) -> list[float]:
        """Return each value summed over all processes."""
        if self.size == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def run_on_first(self, function: Callable[[], Any]) -> Any:
        """
        Run a function on process 0 while the others wait, however long it takes. Return its result,
        which must be picklable, in all processes. If it fails, the others raise a `ValueError`.
        """
        if self.size == 1:
            return function()
        # Result and failure of process 0.
        found: list[Any] = [None, "it was interrupted"]
        try:
            if self.rank == 0:
                found = [function(), None]
        except Exception as error:
            found = [None, str(error) or type(error).__name__]
            raise
        finally:
            dist.broadcast_object_list(found, 0, group=self._patient)
        result, failure = found
        if failure is not None:
            raise ValueError(f"process 0 failed: {failure}")
        return result

    @contextmanager
    def name_lost_process(self) -> Iterator[None]:
        """
        Context manager that replaces PyTorch's error about a lost process by a `RuntimeError`
        that says how to resume.
        """
        try:
            yield
        except RuntimeError as error:
            words = ("gloo", "connection closed", "connection reset", "timed out", "nccl")
            lost = isinstance(error, dist.DistError) or any(
                word in str(error).lower() for word in words
            )
            if self.size == 1 or not lost:
                raise
            time.sleep(1)  # so that the process that failed first prints its error first
            raise RuntimeError(
                f"another process of the run is gone or did not answer in time ({error}), seen by "
                f"process {self.rank}; start the run again with --recover to resume from its last "
                "checkpoint"
            ) from error

    def gather(self, value: Any) -> list[Any] | None:
        """Return a list of all processes' values on process 0, and `None` on the others."""
        if self.size == 1:
            return [value]
        gathered: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, gathered)
        return gathered

    def check_same(self, **values: Any) -> None:
        """
        Raise a `ValueError` if a named value is not equal in all processes. Wait for them, however
        long they read files.
        """
        if self.size == 1:
            return
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, values, group=self._patient)
        for rank, other in enumerate(everyone):
            for name, value in other.items():
                if value != everyone[0][name]:
                    raise ValueError(
                        f"{name} is {everyone[0][name]} in process 0, {value} in process {rank}; "
                        "expected the same in all"
                    )

    def all_reduce_gradients(
        self, parameters: Iterable[torch.nn.Parameter], own_weight: float
    ) -> None:
        """
        Replace dense gradients, which all processes have or none, by their weighted sum over
        processes. `own_weight` is this process's fraction of all batch rows.
        """
        gradients = [one.grad for one in parameters if one.grad is not None]
        while gradients:
            bucket = [gradients.pop(0)]
            while gradients and sum(map(torch.numel, bucket)) + gradients[0].numel() <= BUCKET:
                bucket.append(gradients.pop(0))
            flat = torch.cat([gradient.flatten() for gradient in bucket]).mul_(own_weight)
            dist.all_reduce(flat)
            for gradient, part in zip(bucket, flat.split([one.numel() for one in bucket])):
                gradient.copy_(part.view_as(gradient))

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Broadcast the tensors of process 0 to all processes, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)


def all_reduce_rows(
    softmax: WordSoftmax, negatives: torch.Tensor, processes: Processes, own_weight: float
) -> None:
    """
    Replace the softmax's sparse gradients by their weighted sum over processes, which is dense
    unless `softmax.sparse` is set. `negatives` are the step's word ids, equal in all processes.

    A dense gradient over a large vocabulary would be gigabytes in each step. The rows of negatives
    are all-reduced as one block, and those of targets gathered, each with its word id.
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
