"""`plan.json`: what is to be computed, from what, cut into what; written before anything else."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmo_plugin.bilm.corpus.settings import CorpusSettings
from elmo_plugin.bilm.corpus.shards import Range, Shard, check_shard
from elmo_plugin.bilm.files.whole_file import whole_file

PLAN, COMPLETE = "plan.json", "complete.json"
VERSION = 1


class InputFile(NamedTuple):
    """`name`: as it was given or found, from the folder where the command ran. `size`: in bytes."""

    name: str
    size: int


class PlannedBiLm(NamedTuple):
    """`source`: its name or files, for people. `fingerprint`: see `digest.fingerprint`."""

    source: str
    fingerprint: str
    mixture_size: int
    embedding_dim: int


@dataclass(frozen=True)
class Plan:
    """
    # Parameters

    settings : `CorpusSettings`
        What is wanted.
    bilm : `PlannedBiLm`
        Of which.
    machine : `dict[str, str]`
        Where it was planned, see `machine_of`.
    files : `list[InputFile]`
        The input, in its order.
    shards : `list[Shard]`
        The parts to make.
    """

    settings: CorpusSettings
    bilm: PlannedBiLm
    machine: dict[str, str]
    files: list[InputFile]
    shards: list[Shard]

    @property
    def names(self) -> list[str]:
        """Of the files."""
        return [file.name for file in self.files]

    @property
    def num_layers(self) -> int:
        """That are stored."""
        return self.bilm.mixture_size if self.settings.layers == "all" else 1

    @property
    def shape(self) -> list[int]:
        """Of a line's vectors, with -1 for its tokens."""
        layers = [self.num_layers] if self.settings.layers == "all" else []
        return [*layers, -1, self.bilm.embedding_dim]

    @property
    def digest(self) -> str:
        """Of all that the parts' bytes depend on, but for the machine."""
        parts = [asdict(self.settings), self.bilm.fingerprint, self.names, self.shards]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        """To the folder's `plan.json`."""
        content = {
            "version": VERSION,
            "digest": self.digest,
            "settings": asdict(self.settings),
            "bilm": self.bilm._asdict(),
            "machine": self.machine,
            "files": [file._asdict() for file in self.files],
            "shards": [shard._asdict() for shard in self.shards],
        }
        with whole_file(folder / PLAN) as aside:
            aside.write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Plan":
        """
        From the folder's `plan.json`.

        # Raises

        `ValueError`
            If it is none, or was changed.
        """
        path = folder / PLAN
        try:
            content = json.loads(path.read_text("utf-8"))
            plan = cls(
                CorpusSettings(**content["settings"]),
                PlannedBiLm(**content["bilm"]),
                content["machine"],
                [InputFile(**file) for file in content["files"]],
                [
                    Shard(**{**shard, "ranges": [Range(*one) for one in shard["ranges"]]})
                    for shard in content["shards"]
                ],
            )
            whole = content["version"] == VERSION and content["digest"] == plan.digest
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is no plan of this version ({error!r})") from error
        if not whole:
            raise ValueError(
                f"{path} was changed, or is of another version; expected it as written"
            )
        return plan


def part_name(number: int) -> str:
    """Of a shard's file."""
    return f"part-{number:06d}.parquet"


def check_same(
    plan: Plan,
    folder: Path,
    settings: CorpusSettings,
    bilm: PlannedBiLm,
    files: Iterable[InputFile],
) -> None:
    """
    Raises a `ValueError` that names what is wanted now and was not when this was planned.
    """
    before: dict[str, Any] = {**asdict(plan.settings), "the biLM's digest": plan.bilm.fingerprint}
    now: dict[str, Any] = {**asdict(settings), "the biLM's digest": bilm.fingerprint}
    sizes, sizes_now = ({file.name: file.size for file in group} for group in (plan.files, files))
    if list(sizes) != list(sizes_now):
        before["inputs"], now["inputs"] = _difference(list(sizes), list(sizes_now))
    for name in sizes.keys() & sizes_now.keys():
        before[f"bytes in {name}"], now[f"bytes in {name}"] = sizes[name], sizes_now[name]
    for name, value in before.items():
        if value != now[name]:
            raise ValueError(
                f"{folder / PLAN}: {name} was {value!r} when this corpus was planned and is "
                f"{now[name]!r} now; expected the same, or --force to start again"
            )


def _difference(before: list[str], now: list[str]) -> tuple[str, str]:
    """The first place where two lists differ, for people."""
    shared = next((i for i, (a, b) in enumerate(zip(before, now)) if a != b), None)
    at = min(len(before), len(now)) if shared is None else shared
    return tuple(  # type: ignore[return-value]
        f"{len(names)} files, {names[at] if at < len(names) else 'none'} in place {at + 1}"
        for names in (before, now)
    )


def check_inputs(plan: Plan, root: Path) -> None:
    """Raises a `ValueError` that names the first shard whose text has changed."""
    for shard in plan.shards:
        check_shard(shard, plan.names, root)
