"""Where token streams stand, so that a run may go on there."""

from dataclasses import dataclass
from typing import Any, NamedTuple


class Pending(NamedTuple):
    """
    A sentence that a row is reading.

    `tokens`: boundaries included, in the order of reading. `offset`: of the next input.
    `path`, `line`: where it stands, counted from 1.
    """

    tokens: tuple[str, ...]
    offset: int
    path: str
    line: int


@dataclass(frozen=True)
class StreamPosition:
    """
    Where one direction's streams stand: enough to go on exactly there, without what came before.

    # Parameters

    epoch : `int`, optional (default = `0`)
        Passes over the text that are done.
    file, sentence : `int`, optional (default = `0`)
        Files of this pass that are done, and sentences of the next one, in their shuffled order;
        groups of files where `files_at_once` are shuffled together. Holds for that number only.
    rows : `tuple[Pending, ...]`, optional (default = `()`)
        What each row was reading; nothing at the very start.
    """

    epoch: int = 0
    file: int = 0
    sentence: int = 0
    rows: tuple[Pending, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, for a checkpoint."""
        rows = [[list(row.tokens[row.offset :]), row.path, row.line] for row in self.rows]
        return {
            "epoch": self.epoch,
            "file": self.file,
            "sentence": self.sentence,
            "rows": rows,
        }

    to_json = to_dict  # AllenNLP asks for it where batches are written beside predictions

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "StreamPosition":
        """What `to_dict` gave."""
        rows = tuple(
            Pending(tuple(tokens), 0, path, line) for tokens, path, line in content["rows"]
        )
        return cls(content["epoch"], content["file"], content["sentence"], rows)
