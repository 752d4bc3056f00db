"""Base class of the readers that divide their data between processes themselves."""

import itertools
from typing import Any, Iterable, Iterator, TypeVar

from allennlp.data import DatasetReader
from allennlp.nn.util import is_distributed

_T = TypeVar("_T")


class ShardingReader(DatasetReader):
    """
    Reader whose `_read` calls `shard_iterable`, before the expensive part, on its items. Each
    process of a distributed run, and each of its data workers, then reads a part of them.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )

    def shard_iterable(self, iterable: Iterable[_T]) -> Iterator[_T]:
        """Return this process's part of the items."""
        info = self._distributed_info
        # AllenNLP asks for the process group, which a spawned data worker does not have.
        if info is not None and not is_distributed():
            iterable = itertools.islice(iterable, info.global_rank, None, info.world_size)
        return super().shard_iterable(iterable)
