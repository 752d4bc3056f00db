"""What is wanted of an extraction."""

from dataclasses import dataclass

LAYERS = ("all", "top", "average")
DTYPES = ("float32", "float16")
LAYOUTS = ("sentences", "ragged")
# AllenNLP 0.9's, where the batch has a meaning: it says whose state runs on to whom.
CARRIED_BATCH_SIZE = 64


@dataclass(frozen=True)
class Extraction:
    """
    What is wanted of an extraction; two runs with the same settings give the same bytes.

    # Parameters

    layers : `str`, optional (default = `"all"`)
        `"all"`, the `"top"` one, or their `"average"`.
    batch_size : `Optional[int]`, optional (default = `None`)
        Sentences run together at most. If not given: 64 where the state is carried, else as many as
        `max_tokens` lets in.
    max_tokens : `int`, optional (default = `4096`)
        Positions run together at most, padding and boundaries counted; longer sentences are run in
        chunks of this many tokens. What is run together does not change the vectors.
    dtype : `str`, optional (default = `"float32"`)
        How numbers are stored; `"float16"` takes half the room, with three digits.
    layout : `str`, optional (default = `"sentences"`)
        `"sentences"`: AllenNLP 0.9's, a dataset a sentence. `"ragged"`: one array of all tokens and
        one of offsets.
    compress : `bool`, optional (default = `False`)
        Whether datasets are compressed (gzip, lossless).
    forget_sentences : `bool`, optional (default = `False`)
        Whether to leave the text out of the file.
    use_sentence_keys : `bool`, optional (default = `False`)
        Whether sentences are the datasets' names; see `sentence_key`.

    # Raises

    `ValueError`
        If a value is none of these, or two do not go together.
    """

    layers: str = "all"
    batch_size: int | None = None
    max_tokens: int = 4096
    dtype: str = "float32"
    layout: str = "sentences"
    compress: bool = False
    forget_sentences: bool = False
    use_sentence_keys: bool = False

    def __post_init__(self) -> None:
        for name, known in (("layers", LAYERS), ("dtype", DTYPES), ("layout", LAYOUTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {known}")
        for name, least in (("batch_size", 1), ("max_tokens", 3)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise ValueError(f"{name} is {number}, expected {least} or more")
        if self.use_sentence_keys and self.layout == "ragged":
            raise ValueError(
                "use_sentence_keys was given with the ragged layout, which has no keys; expected "
                "one of the two"
            )
