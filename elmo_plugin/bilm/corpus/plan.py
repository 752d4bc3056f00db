"""Settings of an embedded corpus, and `plan.json`, which divides the input into shards."""

import hashlib
import json
import operator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from elmo_plugin.bilm.corpus.shards import Range, Shard
from elmo_plugin.bilm.extraction.vectors import Extraction
from elmo_plugin.bilm.files.atomic_write import write_json
from elmo_plugin.bilm.files.output_folder import check_same
from elmo_plugin.bilm.model.state import REPRODUCIBLE_MODES

PLAN, COMPLETE = "plan.json", "complete.json"
VERSION = 1


@dataclass(frozen=True)
class CorpusSettings:
    """
    Settings of `embed_corpus`.

    # Parameters

    layers, dtype : `str`, optional (default = `"average"`, `"float16"`)
        See `Extraction`.
    state : `str`, optional (default = `"primed"`)
        Initial LSTM state of a sentence: `"primed"` or `"reset"`, see `BiLm`. `"carry"` is refused,
        because a sentence would depend on all lines before it.
    threads : `int`, optional (default = `1`)
        Threads of each worker. With this package's compiled kernels, vectors are bitwise identical
        for any number of threads. With PyTorch's operators, last bits may differ.
    shard_tokens : `int`, optional (default = `200_000`)
        Approximate number of tokens per shard. An empty line counts as one token.
    max_tokens : `int`, optional (default = `4096`)
        Largest number of tokens in a batch, see `Extraction`.
    replace_bad_utf8 : `bool`, optional (default = `False`)
        Replace bytes that are not UTF-8 by U+FFFD, instead of raising an error.

    # Raises

    `ValueError`
        If a value is not allowed.
    """

    layers: str = "average"
    dtype: str = "float16"
    state: str = "primed"
    threads: int = 1
    shard_tokens: int = 200_000
    max_tokens: int = 4096
    replace_bad_utf8: bool = False

    def __post_init__(self) -> None:
        expected = f"expected one of {', '.join(REPRODUCIBLE_MODES)}"
        if self.state == "carry":
            raise ValueError(
                "state is 'carry', in which a sentence continues from the lines before it, which "
                f"another worker has; {expected}"
            )
        if self.state not in REPRODUCIBLE_MODES:
            raise ValueError(f"state is {self.state!r}, {expected}")
        for name in ("threads", "shard_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 or more")
            object.__setattr__(self, name, operator.index(getattr(self, name)))
        object.__setattr__(self, "max_tokens", self.extraction.max_tokens)

    @property
    def extraction(self) -> Extraction:
        """Layers, dtype and `max_tokens` as an `Extraction`."""
        return Extraction(layers=self.layers, dtype=self.dtype, max_tokens=self.max_tokens)


class InputFile(NamedTuple):
    """Input file: its name, relative to the folder where the command ran, and its size in bytes."""

    name: str
    size: int


class PlannedBiLm(NamedTuple):
    """biLM of a plan: its name or files (`source`), fingerprint and dimensions."""

    source: str
    fingerprint: str
    mixture_size: int
    embedding_dim: int


@dataclass(frozen=True)
class Plan:
    """
    Plan of a corpus: settings, biLM, input files in order, and shards to compute. `machine`
    describes the machine that wrote the plan, see `machine_of`.
    """

    settings: CorpusSettings
    bilm: PlannedBiLm
    machine: dict[str, str]
    files: list[InputFile]
    shards: list[Shard]

    @property
    def names(self) -> list[str]:
        """Names of the input files, in order."""
        return [file.name for file in self.files]

    @property
    def num_layers(self) -> int:
        """Number of layers stored per token."""
        return self.bilm.mixture_size if self.settings.layers == "all" else 1

    @property
    def shape(self) -> list[int]:
        """Shape of the vectors of one line; -1 stands for the number of tokens."""
        layers = [self.num_layers] if self.settings.layers == "all" else []
        return [*layers, -1, self.bilm.embedding_dim]

    @property
    def fingerprint(self) -> str:
        """Hash of everything that the output's bytes depend on, except the machine."""
        parts = [asdict(self.settings), self.bilm.fingerprint, self.names, self.shards]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        """Write the plan to `plan.json` in the folder."""
        content = {
            "version": VERSION,
            "digest": self.fingerprint,
            "settings": asdict(self.settings),
            "bilm": self.bilm._asdict(),
            "machine": self.machine,
            "files": [file._asdict() for file in self.files],
            "shards": [shard._asdict() for shard in self.shards],
        }
        write_json(folder / PLAN, content, indent=None)

    @classmethod
    def load(cls, folder: Path) -> "Plan":
        """
        Read the plan from `plan.json` in the folder. A file that is not a plan of this version, or
        was edited, causes a `ValueError`.
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
            whole = content["version"] == VERSION and content["digest"] == plan.fingerprint
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is no plan of this version ({error!r})") from error
        if not whole:
            raise ValueError(
                f"{path} was changed, or is of another version; expected it as written"
            )
        return plan


def part_name(number: int) -> str:
    """Return the file name of a shard's Parquet file."""
    return f"part-{number:06d}.parquet"


def check_plan(plan: Plan, folder: Path, planned: Plan) -> None:
    """
    Raise a `ValueError` if settings, biLM or input files of a new plan differ from those of `plan`
    in the folder. Only the setting `threads` may differ.
    """
    before, now = (
        {
            **asdict(replace(one.settings, threads=1)),
            "the biLM's digest": one.bilm.fingerprint,
            "number of inputs": len(one.files),
            **{f"input {place}": file.name for place, file in enumerate(one.files, start=1)},
            **{f"bytes in {file.name}": file.size for file in one.files},
        }
        for one in (plan, planned)
    )
    check_same(folder / PLAN, before, now, "expected the same, or --force to start again")
