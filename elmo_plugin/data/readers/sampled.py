"""A part of what another reader reads: for learning curves."""

import random
from typing import Any, Iterator, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo, WorkerInfo


@DatasetReader.register("sampled", exist_ok=True)
class SampledDatasetReader(DatasetReader):
    """
    Keeps each instance with the same probability, in the order of the file. What a smaller fraction
    keeps a larger one keeps too (Peters et al. 2018, Figure 1, samples at random as well). Several
    processes or workers keep others than one would.

    # Parameters

    reader : `DatasetReader`
        Reads and indexes the instances; its `max_instances` comes first.
    fraction : `float`
        Above 0, at most 1.
    seed : `int`, optional (default = `0`)
        Another one keeps others.

    # Raises

    `ConfigurationError`
        If `fraction` is not above 0 and at most 1; in reading, if nothing is left.
    """

    def __init__(
        self, reader: DatasetReader, fraction: float, seed: int = 0, **kwargs: Any
    ) -> None:
        # `reader` gives each process and each worker its share.
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        if not 0 < fraction <= 1:
            raise ConfigurationError(
                f"fraction is {fraction}, expected a number above 0 and at most 1"
            )
        self._reader = reader
        self._fraction = fraction
        self._seed = seed

    def _set_worker_info(self, info: Optional[WorkerInfo]) -> None:
        super()._set_worker_info(info)
        self._reader._set_worker_info(info)

    def _set_distributed_info(self, info: Optional[DistributedInfo]) -> None:
        super()._set_distributed_info(info)
        self._reader._set_distributed_info(info)

    def _draws(self) -> random.Random:
        """Of their own in each share."""
        worker, process = self.get_worker_info(), self.get_distributed_info()
        share = (process.global_rank if process else 0, worker.id if worker else 0)
        return random.Random(self._seed if share == (0, 0) else f"{self._seed} {share}")

    def _read(self, file_path: Any) -> Iterator[Instance]:
        draws = self._draws()
        number = kept = 0
        for instance in self._reader.read(file_path):
            number += 1
            if draws.random() < self._fraction:
                kept += 1
                yield instance
        # A share may keep none where another keeps some.
        if number and not kept and not (self.get_worker_info() or self.get_distributed_info()):
            raise ConfigurationError(
                f"{file_path}: a fraction of {self._fraction} keeps none of {number} instances; "
                "expected a larger one"
            )

    def text_to_instance(self, *inputs: Any, **kwargs: Any) -> Instance:
        """What `reader` makes of it."""
        return self._reader.text_to_instance(*inputs, **kwargs)

    def apply_token_indexers(self, instance: Instance) -> None:
        """As `reader` does."""
        self._reader.apply_token_indexers(instance)
