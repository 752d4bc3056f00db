"""The processes of a run: what each has of the whole, and what they tell each other."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from elmo_plugin.bilm.model.lstm import LstmState

# For which a process that failed alone waits for the others to hear of it.
SECONDS_TO_HEAR = 10
# Elements of the gradients that are sent in one piece.
BUCKET = 2**25


class Processes:
    """
    Those of PyTorch's default process group; a single one where there is none.

    # Parameters

    device : `torch.device`
        This process's.
    """

    def __init__(self, device: torch.device) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.device = device
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    def share(self, num_rows: int) -> range:
        """Which of `num_rows` rows are this process's."""
        return range(self.rank * num_rows // self.size, (self.rank + 1) * num_rows // self.size)

    def total(self, *values: float) -> list[float]:
        """Sums over all processes, the same on each."""
        if self.size == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def wait(self) -> None:
        """Until all are here."""
        self.total(0.0)

    def first_alone(self, name: str, function: Callable[[], None]) -> None:
        """
        The first process runs the function while the others wait, however long it takes.

        # Raises

        `ValueError`
            In the others, if it failed.
        """
        if self.size == 1:
            function()
            return
        store = dist.distributed_c10d._get_default_store()
        heard = f"{name}: heard"
        if self.rank == 0:
            failure = "it ended"
            try:
                function()
                failure = ""
            except Exception as error:
                failure = str(error) or type(error).__name__
                raise
            finally:
                store.set(name, failure)
                # The store may be this process's, and go with it.
                until = time.monotonic() + SECONDS_TO_HEAR
                while failure and store.add(heard, 0) < self.size - 1 and time.monotonic() < until:
                    time.sleep(0.05)
        while not store.check([name]):
            time.sleep(0.2)
        failure = store.get(name).decode()
        if failure:
            store.add(heard, 1)
            raise ValueError(f"process 0 failed: {failure}")

    def gather(self, value: Any) -> list[Any] | None:
        """Every process's, on the first; `None` on the others."""
        if self.size == 1:
            return [value]
        gathered: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, gathered)
        return gathered

    def check_same(self, **values: Any) -> None:
        """
        # Raises

        `ValueError`
            If the processes do not have the same; the text names what and which.
        """
        if self.size == 1:
            return
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, values)
        for rank, other in enumerate(everyone):
            for name, value in other.items():
                if value != everyone[0][name]:
                    raise ValueError(
                        f"{name} is {everyone[0][name]} in process 0, {value} in process {rank}; "
                        "expected the same in all"
                    )

    def share_states(
        self, states: tuple[LstmState, LstmState], num_rows: int
    ) -> tuple[LstmState, LstmState]:
        """This process's rows of all rows' states, on its device."""
        rows = self.share(num_rows)
        forward, backward = (
            state.map(lambda tensor: tensor[:, rows.start : rows.stop].to(self.device))
            for state in states
        )
        return forward, backward

    def average(self, parameters: Iterable[torch.nn.Parameter], own_weight: float) -> None:
        """
        Makes the gradients the sum of all processes', each times its weight.

        # Parameters

        parameters : `Iterable[torch.nn.Parameter]`
            Those that have a gradient have one in all processes, and a dense one.
        own_weight : `float`
            This process's share of the rows.
        """
        if self.size == 1:
            return
        gradients = [one.grad for one in parameters if one.grad is not None]
        while gradients:
            bucket = [gradients.pop(0)]
            while gradients and sum(map(torch.numel, bucket)) + gradients[0].numel() <= BUCKET:
                bucket.append(gradients.pop(0))
            flat = torch.cat([gradient.flatten() for gradient in bucket]).mul_(own_weight)
            dist.all_reduce(flat)
            for gradient, part in zip(bucket, flat.split([one.numel() for one in bucket])):
                gradient.copy_(part.view_as(gradient))

    def make_same(self, tensors: Iterable[torch.Tensor]) -> None:
        """The first process's values in all."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)
