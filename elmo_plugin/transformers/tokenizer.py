"""Tokenizer of Hugging Face transformers whose tokens are words."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split, WhitespaceSplit
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import LARGE_INTEGER

from elmo_plugin.bilm.model.characters import PADDING_CHARACTER_ID, token_row
from elmo_plugin.bilm.model.tokens import check_batch, tokenized_batch

# A word with inner hyphens, apostrophes, points and commas, or another mark.
WORD_OR_MARK = r"\w+(?:[-'’.,]\w+)*|[^\w\s]"
# Stands for an empty word, which Rust's tokenizers drop: no text has this code point.
EMPTY_WORD = "\U0010ffff"
LONE = re.compile("[\ud800-\udfff]")


class ElmoTokenizer(PreTrainedTokenizerBase):
    """
    Tokenizer whose tokens are words: `input_ids` hold a row of `num_characters` character ids for
    each word. There are no sub-words and no special tokens, so labels of words need no alignment.

    It has no vocabulary and keeps no state between calls, so `datasets.map` finds its cache again.

    # Parameters

    num_characters : `int`, optional (default = `50`)
        Number of character ids per word; the biLM's `max_characters_per_token`.
    split_punctuation : `bool`, optional (default = `True`)
        Split strings into words and punctuation marks; otherwise at white space alone. Lists of
        words (`is_split_into_words`) are not split.
    kwargs : `Any`
        Arguments of `PreTrainedTokenizerBase`, such as `model_max_length`, in words.

    # Raises

    `ValueError`
        If `padding_side` is not `"right"`.
    """

    model_input_names = ["input_ids", "attention_mask"]
    is_fast = True  # it has offsets, and `word_ids()`
    added_tokens_decoder: dict[int, Any] = {}
    added_tokens_encoder: dict[str, int] = {}
    vocab_size = PADDING_CHARACTER_ID + 1
    pad_token, pad_token_id = "", 0
    deprecation_warnings: dict[str, bool] = {}

    def __init__(
        self, num_characters: int = 50, split_punctuation: bool = True, **kwargs: Any
    ) -> None:
        self.num_characters = num_characters
        self.split_punctuation = split_punctuation
        kwargs.pop("added_tokens_decoder", None)
        super().__init__(
            num_characters=num_characters, split_punctuation=split_punctuation, **kwargs
        )
        # Collators write into it, and `datasets` hashes what an object stores: the class's is used.
        self.__dict__.pop("deprecation_warnings", None)
        _check_side(self.padding_side)

    def __len__(self) -> int:
        return self.vocab_size

    def __call__(
        self,
        text: Any,
        text_pair: None = None,
        *,
        is_split_into_words: bool = False,
        padding: Any = False,
        truncation: Any = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_tensors: Any = None,
        **options: Any,
    ) -> BatchEncoding:
        """
        Convert texts to character ids.

        # Parameters

        text : `Any`
            A string or a list of strings; with `is_split_into_words`, a list of words or a list of
            such lists.
        options : `Any`
            `return_offsets_mapping` and the other arguments of transformers' fast tokenizers. Those
            about special tokens have no effect.

        # Returns

        `BatchEncoding`
            `input_ids`, shape `(batch_size, num_tokens, num_characters)`, and `attention_mask`.
            Its methods `tokens()` and `word_ids()` work as those of fast tokenizers.

        # Raises

        `ValueError`
            If `text_pair` or `return_overflowing_tokens` is given, a text is no string, a word has
            no text, or `padding_side` is `"left"`.
        """
        if text_pair is not None or options.get("return_overflowing_tokens"):
            raise ValueError(
                "text_pair or return_overflowing_tokens was given, expected neither: ELMo reads "
                "single texts of any length"
            )
        _check_side(options.get("padding_side") or self.padding_side)
        if not isinstance(text, str):
            check_batch(text)
        is_single = isinstance(text, str) or (
            is_split_into_words and all(isinstance(one, str) for one in text)
        )
        texts = [text] if is_single else list(text)
        if is_split_into_words:
            texts = tokenized_batch(texts)
        elif others := [number for number, one in enumerate(texts) if not isinstance(one, str)]:
            raise ValueError(
                f"text {others[0]} is {texts[others[0]]!r}, expected a string; give "
                "is_split_into_words=True for lists of words"
            )
        encodings, rows = self._encodings(texts, is_split_into_words)
        padding, truncation, max_length = self._strategies(
            padding, truncation, max_length, pad_to_multiple_of
        )
        if truncation != "do_not_truncate":
            for one in encodings:
                one.truncate(min(max_length, 1 << 31), direction=self.truncation_side)
        length = _padded_length(list(map(len, encodings)), padding, max_length, pad_to_multiple_of)
        for one in encodings:
            one.pad(length, pad_id=len(rows) - 1)
        data: dict[str, Any] = {"input_ids": [[rows[i] for i in one.ids] for one in encodings]}
        if options.get("return_attention_mask") is not False:
            data["attention_mask"] = [one.attention_mask for one in encodings]
        if options.get("return_special_tokens_mask"):
            data["special_tokens_mask"] = [one.special_tokens_mask for one in encodings]
        if options.get("return_offsets_mapping"):
            data["offset_mapping"] = [one.offsets for one in encodings]
        if options.get("return_length"):
            data["length"] = [len(one) for one in encodings]
        if is_single and return_tensors is None:
            return BatchEncoding({key: values[0] for key, values in data.items()}, encodings)
        return self._encoded(data, encodings, return_tensors)

    encode_plus = batch_encode_plus = __call__

    def _encodings(self, texts: list[Any], is_split: bool) -> tuple[list[Any], list[list[int]]]:
        """
        Return the encoding of each text, and the rows of characters that its ids stand for. The
        last row is padding's.
        """
        # Rust has no strings with lone surrogates, which `token_row` drops, too. Offsets in a text
        # count them.
        texts = [
            [LONE.sub("", word) or EMPTY_WORD for word in one]
            if is_split
            else LONE.sub("\ufffd", one)
            for one in texts
        ]
        backend = Tokenizer(WordLevel({"": 0}, unk_token=""))
        words = texts
        if not is_split:
            split = Split(Regex(WORD_OR_MARK), "removed", invert=True)
            backend.pre_tokenizer = split if self.split_punctuation else WhitespaceSplit()
            cut = backend.pre_tokenizer.pre_tokenize_str
            words = [[word for word, _ in cut(text)] for text in texts]
        # A vocabulary of these words alone: its encodings know tokens, offsets and words.
        vocabulary = {word: 0 for sentence in words for word in sentence}
        numbered = {word: number for number, word in enumerate(vocabulary)}
        backend.model = WordLevel(numbered, unk_token="")
        spelled = ["" if word == EMPTY_WORD else word for word in numbered]
        rows = [*self.convert_tokens_to_ids(spelled), [0] * self.num_characters]
        return backend.encode_batch(texts, is_split, add_special_tokens=False), rows

    def _encoded(self, data: dict[str, Any], encodings: Any, tensors: Any) -> BatchEncoding:
        if tensors is not None and not any(map(len, data["input_ids"])):
            # Without a token, the lists show no further dimensions and no integers.
            ends = {"input_ids": [self.num_characters], "offset_mapping": [2]}
            for key in {*data} & {*ends, "attention_mask", "special_tokens_mask"}:
                data[key] = numpy.zeros((len(data[key]), 0, *ends.get(key, [])), int)
        return BatchEncoding(data, encodings, tensor_type=tensors)

    def _strategies(
        self, padding: Any, truncation: Any, max_length: int | None, multiple: int | None
    ) -> tuple[Any, Any, Any]:
        """Return transformers' names of how to pad and truncate, and the length for both."""
        if padding == "max_length" and max_length is None and self.model_max_length > LARGE_INTEGER:
            raise ValueError(
                "padding is 'max_length' without max_length or model_max_length, expected a number"
            )
        given = padding or False, truncation, max_length, multiple
        return self._get_padding_truncation_strategies(*given)[:3]

    def pad(
        self,
        encoded_inputs: Any,
        padding: Any = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_tensors: Any = None,
        **options: Any,
    ) -> BatchEncoding:
        """Pad encoded texts on the right, as collators need it."""
        _check_side(options.get("padding_side") or self.padding_side)
        is_single = isinstance(encoded_inputs, Mapping)
        if not is_single:
            examples = list(encoded_inputs)
            keys = examples[0] if examples else self.model_input_names
            encoded_inputs = {key: [one[key] for one in examples] for key in keys}
        data = dict(encoded_inputs)
        ids = data["input_ids"]
        if return_tensors is None and len(ids) and not isinstance(ids[0], Sequence):
            return_tensors = "pt" if isinstance(ids[0], torch.Tensor) else "np"
        if is_single and len(ids):
            is_single = numpy.shape(ids[0]) == (self.num_characters,)
        if is_single:
            data = {key: [values] for key, values in data.items()}
        lengths = [len(one) for one in data["input_ids"]]
        padding, _, max_length = self._strategies(padding, None, max_length, pad_to_multiple_of)
        length = _padded_length(lengths, padding, max_length, pad_to_multiple_of)
        if options.get("return_attention_mask") is not False:
            data.setdefault("attention_mask", [[1] * one for one in lengths])
        row = [0] * self.num_characters
        for key, filler in (("input_ids", row), ("attention_mask", 0), ("special_tokens_mask", 1)):
            if key in data:
                lists = (numpy.asarray(values).tolist() for values in data[key])
                data[key] = [one + [filler] * (length - len(one)) for one in lists]
        found = self._encoded(data, None, return_tensors)
        return BatchEncoding({key: found[key][0] for key in found}) if is_single else found

    def encode(self, text: Any, text_pair: None = None, **kwargs: Any) -> Any:
        """Return the `input_ids` of a text."""
        return self(text, text_pair, **kwargs)["input_ids"]

    def tokenize(self, text: str, **kwargs: Any) -> list[str]:
        """Return the words of a text."""
        return self(text).tokens()

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Return the row of character ids of a word, or the rows of several."""
        if isinstance(tokens, str):
            return token_row(tokens, self.num_characters).tolist()
        return [self.convert_tokens_to_ids(one) for one in tokens]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the word of a row of character ids, or the words of several, without padding."""
        found = numpy.asarray(ids)
        if found.ndim == 1:
            octets = bytes(number - 1 for number in found.tolist() if 0 < number <= 256)
            return octets.decode("utf-8", "replace")
        return [self.convert_ids_to_tokens(row) for row in found if row.any()]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Return the words with spaces between them."""
        return " ".join(tokens)

    def decode(self, token_ids: Any, **kwargs: Any) -> Any:
        """Return the text of a sentence's ids, or a list of texts for a batch's."""
        if numpy.ndim(token_ids) == 3:
            return [self.decode(one) for one in token_ids]
        return " ".join(self.convert_ids_to_tokens(token_ids))

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Return 0: there are no special tokens."""
        return 0

    def get_special_tokens_mask(self, token_ids_0: Any, *_: Any, **__: Any) -> list[int]:
        """Return 1 for each row of padding of a sentence's ids, 0 for each word."""
        return [int(not any(row)) for row in token_ids_0]

    def get_vocab(self, *_: Any, **__: Any) -> Any:
        """Raise a `NotImplementedError`: words are spelled, not looked up."""
        raise NotImplementedError(
            "ElmoTokenizer has no vocabulary that could be listed or extended: a token is any "
            "word, and its id a row of characters; is_split_into_words=True keeps words as given"
        )

    add_tokens = add_special_tokens = get_vocab

    def save_vocabulary(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Write nothing: `tokenizer_config.json` holds everything."""
        return ()


def _check_side(side: str | None) -> None:
    if side not in (None, "right"):
        raise ValueError(f"padding_side is {side!r}, expected 'right': padding follows the tokens")


def _padded_length(lengths: list[int], padding: str, max_length: int, multiple: int | None) -> int:
    """Return the number of tokens to pad to; 0 for no padding."""
    if padding == "do_not_pad":
        return 0
    length = max_length if padding == "max_length" else max(lengths, default=0)
    return -(-length // multiple) * multiple if multiple else length
