"""Dataset reader that keeps a random sample of another reader's instances, for learning curves."""

import random
from typing import Any, Iterator, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo, WorkerInfo


@DatasetReader.register("sampled", exist_ok=True)
class SampledDatasetReader(DatasetReader):
    """
    Keeps each instance of another reader with probability `fraction`, as for figure 1 of Peters et
    al. 2018. The order stays the same. With the same seed, a larger `fraction` keeps all instances
    that a smaller one keeps. The sample depends on the number of training processes and workers.

    # Parameters

    reader : `DatasetReader`
        Reader to sample from; its `max_instances` applies before sampling.
    fraction : `float`
        Probability of keeping an instance, above 0 and at most 1.
    seed : `int`, optional (default = `0`)

    # Raises

    `ConfigurationError`
        If `fraction` is out of range. While reading in a single process, if the sample is empty.
    """

    def __init__(
        self, reader: DatasetReader, fraction: float, seed: int = 0, **kwargs: Any
    ) -> None:
        # The inner reader already shards instances by process and worker.
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
        """Return a random generator whose seed depends on this process and worker."""
        worker, process = self.get_worker_info(), self.get_distributed_info()
        shard = (process.global_rank if process else 0, worker.id if worker else 0)
        return random.Random(self._seed if shard == (0, 0) else f"{self._seed} {shard}")

    def _read(self, file_path: Any) -> Iterator[Instance]:
        draws = self._draws()
        number = kept = 0
        for instance in self._reader.read(file_path):
            number += 1
            if draws.random() < self._fraction:
                kept += 1
                yield instance
        # With several processes or workers, one of them may have an empty sample.
        if number and not kept and not (self.get_worker_info() or self.get_distributed_info()):
            raise ConfigurationError(
                f"{file_path}: a fraction of {self._fraction} keeps none of {number} instances; "
                "expected a larger one"
            )

    def text_to_instance(self, *inputs: Any, **kwargs: Any) -> Instance:
        """Return the result of `reader.text_to_instance`."""
        return self._reader.text_to_instance(*inputs, **kwargs)

    def apply_token_indexers(self, instance: Instance) -> None:
        """Attach the token indexers of `reader` to the instance."""
        self._reader.apply_token_indexers(instance)
