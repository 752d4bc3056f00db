"""What is wanted of a corpus."""

from dataclasses import dataclass

from elmo_plugin.bilm.extraction.settings import Extraction

STATES = ("primed", "reset")


@dataclass(frozen=True)
class CorpusSettings:
    """
    All that, beside inputs and weights, a part's bytes depend on.

    # Parameters

    layers : `str`, optional (default = `"average"`)
        `"all"`, the `"top"` one, or their `"average"`.
    dtype : `str`, optional (default = `"float16"`)
        How numbers are stored; `"float16"` has three digits.
    state : `str`, optional (default = `"primed"`)
        Where a sentence's LSTM state starts: `"primed"` or `"reset"`, see `BiLm`. `"carry"` is
        refused: a sentence would depend on all before it.
    threads : `int`, optional (default = `1`)
        Of each worker; their number may change the last digit of a product.
    shard_tokens : `int`, optional (default = `200_000`)
        Tokens of a shard, about; a line counts as one at least.
    max_tokens : `int`, optional (default = `4096`)
        See `Extraction`.
    replace_bad_utf8 : `bool`, optional (default = `False`)
        Whether what is not UTF-8 becomes U+FFFD, in place of an error.

    # Raises

    `ValueError`
        If a value is none of these.
    """

    layers: str = "average"
    dtype: str = "float16"
    state: str = "primed"
    threads: int = 1
    shard_tokens: int = 200_000
    max_tokens: int = 4096
    replace_bad_utf8: bool = False

    def __post_init__(self) -> None:
        _ = self.extraction
        if self.state == "carry":
            raise ValueError(
                "state is 'carry', in which a sentence goes on from the lines before it, which are "
                f"another worker's; expected one of {STATES}"
            )
        if self.state not in STATES:
            raise ValueError(f"state is {self.state!r}, expected one of {STATES}")
        for name in ("threads", "shard_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 or more")

    @property
    def extraction(self) -> Extraction:
        """What the `elmo` command would be told."""
        return Extraction(layers=self.layers, dtype=self.dtype, max_tokens=self.max_tokens)
