"""Base classes of the readers."""

import itertools
from typing import Any, Dict, Iterable, Iterator, Optional, TypeVar

from allennlp.data import DatasetReader, Instance, TokenIndexer
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.nn.util import is_distributed

_T = TypeVar("_T")


class IndexingReader(DatasetReader):
    """
    Reader that attaches the same token indexers to all its text fields.

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
    """

    def __init__(
        self, token_indexers: Optional[Dict[str, TokenIndexer]] = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}

    def apply_token_indexers(self, instance: Instance) -> None:
        """Attach this reader's token indexers to the instance."""
        for field in instance.fields.values():
            if isinstance(field, TextField):
                field.token_indexers = self._token_indexers


class ShardingReader(IndexingReader):
    """
    Reader whose `_read` calls `shard_iterable`, before the expensive part, on its items. Each
    process of a distributed run, and each of its data workers, then reads a part of them.

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
    """

    def __init__(
        self, token_indexers: Optional[Dict[str, TokenIndexer]] = None, **kwargs: Any
    ) -> None:
        manual: Any = {"manual_distributed_sharding": True, "manual_multiprocess_sharding": True}
        super().__init__(token_indexers, **manual, **kwargs)

    def shard_iterable(self, iterable: Iterable[_T]) -> Iterator[_T]:
        """Return this process's part of the items."""
        info = self._distributed_info
        # AllenNLP asks for the process group, which a spawned data worker does not have.
        if info is not None and not is_distributed():
            iterable = itertools.islice(iterable, info.global_rank, None, info.world_size)
        return super().shard_iterable(iterable)
