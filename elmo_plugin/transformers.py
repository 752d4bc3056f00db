"""
ELMo in Hugging Face transformers: configuration, tokenizer and models.

Importing this module registers them, so that `AutoConfig`, `AutoTokenizer`, `AutoModel...` and
`pipeline` know the model type `elmo`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
import transformers
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split, WhitespaceSplit
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import BatchEncoding, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers import modeling_outputs as outputs
from transformers.pipelines import PIPELINE_REGISTRY, TokenClassificationPipeline
from transformers.tokenization_utils_base import LARGE_INTEGER

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.options import options_dict, parse_options
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.characters import PADDING_CHARACTER_ID, token_row
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.model.scalar_mix import ScalarMix
from elmo_plugin.bilm.model.tokens import check_batch, tokenized_batch

# A word with inner hyphens, apostrophes, points and commas, or another mark.
WORD_OR_MARK = r"\w+(?:[-'’.,]\w+)*|[^\w\s]"
# Stands for an empty word, which Rust's tokenizers drop: no text has this code point.
EMPTY_WORD = "\U0010ffff"


class ElmoConfig(PretrainedConfig):
    """
    Configuration of an `ElmoModel`. `from_bilm` of the models makes it from a biLM's files.

    # Parameters

    options : `Optional[Dict[str, Any]]`
        Sizes of the biLM: the content of its `options.json`.
    state : `str`, optional (default = `"primed"`)
        Initial LSTM state of a sentence; see `BiLm`.
    requires_grad : `bool`, optional (default = `False`)
        Train the biLM. Otherwise only the scalar mix and the head are trained.
    dropout : `float`, optional (default = `0.5`)
        Probability of dropping an element of the mixed layers in training.
    do_layer_norm : `bool`, optional (default = `False`)
        Normalise the layers before mixing; see `ScalarMix`.
    pooling : `str`, optional (default = `"mean"`)
        `"mean"` or `"max"` over the tokens, in `ElmoForSequenceClassification`.
    encoder_size : `int`, optional (default = `0`)
        Width of each direction of an LSTM below the models' linear layer; 0 for no LSTM.
    """

    model_type = "elmo"

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        state: str = "primed",
        requires_grad: bool = False,
        dropout: float = 0.5,
        do_layer_norm: bool = False,
        pooling: str = "mean",
        encoder_size: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"pad_token_id": 0, **kwargs})  # the tokenizer's
        if pooling not in ("mean", "max"):
            raise ValueError(f"pooling is {pooling!r}, expected 'mean' or 'max'")
        self.options = options
        self.state = state
        self.requires_grad = requires_grad
        self.dropout = dropout
        self.do_layer_norm = do_layer_norm
        self.pooling = pooling
        self.encoder_size = encoder_size

    def bilm_options(self) -> ElmoOptions:
        """Return the biLM's sizes; raise a `ValueError` if `options` does not hold them."""
        if self.options is None:
            raise ValueError("config.options is None, expected a biLM's options; see from_bilm")
        found = parse_options(self.options, "config.options")
        if type(found) is not ElmoOptions:
            raise ValueError("config.options are ELMoForManyLangs' options, expected bilm-tf's")
        return found

    @property
    def hidden_size(self) -> int:
        """Width of the model's output, the biLM's `embedding_dim`."""
        return self.bilm_options().embedding_dim


class ElmoPreTrainedModel(PreTrainedModel):
    """Base class of the models: loading and saving. Gradient checkpointing is refused."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    _no_split_modules = ["BiLm"]

    @classmethod
    def from_bilm(
        cls, options_file: Any = "embedded", weight_file: Any = None, **config: Any
    ) -> "ElmoPreTrainedModel":
        """
        Return a new model around a biLM.

        # Parameters

        options_file, weight_file
            The biLM's name or files; see `Elmo`.
        config : `Any`
            Further arguments of `ElmoConfig`, such as `num_labels`, `id2label` and `label2id`.
        """
        bilm = load_bilm(options_file, weight_file)
        model = cls(ElmoConfig(options=options_dict(bilm.options), **config))
        model.base_model._elmo_lstm.load_state_dict(bilm.state_dict())
        return model

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a folder or a repository of the hub; see transformers' `PreTrainedModel`."""
        found = super().from_pretrained(*args, **kwargs)
        model = found[0] if isinstance(found, tuple) else found
        # Transformers 5 makes every parameter trainable.
        model.base_model._elmo_lstm.requires_grad_(model.config.requires_grad)
        return found

    @staticmethod
    def _fix_state_dict_key_on_load(key: str) -> Any:
        """Keep the name `gamma`. Transformers 4.48 would rename it to `weight`."""
        kept = PreTrainedModel._fix_state_dict_key_on_load("")
        return key if kept == "" else (key, *kept[1:])  # a tuple since transformers 4.49

    def _init_weights(self, module: Any) -> None:
        """Initialize a module whose weights a checkpoint lacks."""
        # Transformers 5.0 calls this for modules that are loaded, too.
        if all(getattr(one, "_is_hf_initialized", False) for one in module.parameters()):
            return
        if isinstance(module, CharCnn):
            module.reset_parameters(self.config.bilm_options().activation)
        elif isinstance(module, ScalarMix):
            for one in module.parameters():
                torch.nn.init.constant_(one, float(one is module.gamma))
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()

    def _returned(self, found: Any, return_dict: bool | None) -> Any:
        if return_dict is None:
            return_dict = self.config.return_dict
        return found if return_dict else found.to_tuple()


class ElmoModel(ElmoPreTrainedModel):
    """
    biLM and scalar mix. Parameters have the names of `Elmo`, so state dicts fit both.

    # Parameters

    config : `ElmoConfig`

    # Raises

    `ValueError`
        If the configuration has no biLM's options.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self._elmo_lstm = BiLm(config.bilm_options(), config.state)
        self._elmo_lstm.requires_grad_(config.requires_grad)
        self.scalar_mix_0 = ScalarMix(self._elmo_lstm.num_layers, config.do_layer_norm)
        self._dropout = torch.nn.Dropout(config.dropout)
        if self._elmo_lstm.device.type != "meta":
            for module in self.modules():  # their constructors have initialized them
                module._is_hf_initialized = True
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        token_type_ids: None = None,
        inputs_embeds: None = None,
        output_attentions: bool | None = None,
    ) -> Any:
        """
        Compute the mixed layers of a batch of sentences.

        # Parameters

        input_ids : `torch.Tensor`
            Character ids from `ElmoTokenizer`, shape `(batch_size, num_tokens, num_characters)`.
        attention_mask : `Optional[torch.Tensor]`
            Shape `(batch_size, num_tokens)`; 0 at padding, which must be on the right.
        output_hidden_states : `Optional[bool]`
            Return the biLM's layers too.
        return_dict : `Optional[bool]`
            If `False`, return a tuple.
        token_type_ids, inputs_embeds, output_attentions : `Optional[Any]`
            Arguments of other models that ELMo has no use for: `None` or `False`.

        # Returns

        `BaseModelOutput`
            `last_hidden_state`: the scalar mix, shape `(batch_size, num_tokens, embedding_dim)`,
            zero at padding. `hidden_states`: layers of the same shape, token layer first.

        # Raises

        `ValueError`
            If an argument that ELMo has no use for is given.
        """
        if token_type_ids is not None or inputs_embeds is not None or output_attentions:
            raise ValueError(
                "token_type_ids, inputs_embeds or output_attentions was given, expected none: ELMo "
                "reads characters and has no attention"
            )
        output = BiLmOutput.of(self._elmo_lstm(input_ids * _real(input_ids, attention_mask)))
        (mixed,), *_ = BiLmOutput([self.scalar_mix_0(*output[:2])], output.mask).tokens()
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        found = outputs.BaseModelOutput(
            last_hidden_state=self._dropout(mixed),
            hidden_states=tuple(output.tokens().layers) if output_hidden_states else None,
        )
        return self._returned(found, return_dict)


class _ElmoWithHead(ElmoPreTrainedModel):
    """`ElmoModel`, perhaps an LSTM, and a linear layer that predicts `config.num_labels` labels."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)
        width, size = config.hidden_size, config.encoder_size
        self.encoder = None
        if size:
            self.encoder = torch.nn.LSTM(width, size, batch_first=True, bidirectional=True)
            width = 2 * size
        self.classifier = torch.nn.Linear(width, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        token_type_ids: None = None,
        inputs_embeds: None = None,
        output_attentions: bool | None = None,
    ) -> Any:
        """
        Compute the labels' logits, and the loss if `labels` are given. For the arguments see
        `ElmoModel`; for `labels` and the output see the class.
        """
        unused = token_type_ids, inputs_embeds, output_attentions
        encoded = self.elmo(input_ids, attention_mask, output_hidden_states, True, *unused)
        vectors, mask = encoded.last_hidden_state, _real(input_ids, attention_mask)
        if self.encoder is not None:
            vectors = functional.pad(vectors, (0, 0, 0, 1))  # an empty text is a row of zeros
            lengths = mask.sum(dim=(1, 2)).clamp(min=1).cpu()
            packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
            vectors, _ = pad_packed_sequence(
                self.encoder(packed)[0], batch_first=True, total_length=vectors.shape[1]
            )
            vectors = functional.dropout(vectors[:, :-1], self.config.dropout, self.training)
        logits = self.classifier(self._pooled(vectors * mask, mask))
        loss = None if labels is None else self._loss(logits.float(), labels)
        found = self.output_class(loss=loss, logits=logits, hidden_states=encoded.hidden_states)
        return self._returned(found, return_dict)


class ElmoForTokenClassification(_ElmoWithHead):
    """
    `ElmoModel` with a linear layer over each token: named entities, parts of speech.

    `labels` have shape `(batch_size, num_tokens)`, with -100 at tokens that do not count. `forward`
    returns a `TokenClassifierOutput` with `logits`, shape `(batch_size, num_tokens, num_labels)`,
    and `loss`, the mean cross entropy.

    # Parameters

    config : `ElmoConfig`
    """

    output_class = outputs.TokenClassifierOutput

    def _pooled(self, vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return vectors

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class ElmoForSequenceClassification(_ElmoWithHead):
    """
    `ElmoModel` with a linear layer over the pooled tokens: classes or scores of texts.

    `labels` have shape `(batch_size,)`: classes, or numbers if `num_labels` is 1. Floating-point
    labels of shape `(batch_size, num_labels)` are several classes at once, or several numbers with
    `problem_type="regression"`. `forward` returns a `SequenceClassifierOutput` with `logits`, shape
    `(batch_size, num_labels)`, and `loss`: cross entropy, binary cross entropy or squared error.

    # Parameters

    config : `ElmoConfig`
    """

    output_class = outputs.SequenceClassifierOutput

    def _pooled(self, vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.config.pooling == "mean":
            return vectors.sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        lowest = torch.finfo(vectors.dtype).min
        largest = functional.pad(vectors.masked_fill(~mask, lowest), (0, 0, 0, 1), value=lowest)
        return largest.amax(dim=1) * mask.any(dim=1)

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        problem = self.config.problem_type
        if problem == "regression" or (problem is None and logits.shape[1] == 1):
            return functional.mse_loss(logits, labels.view_as(logits).float())
        if problem == "multi_label_classification" or (problem is None and labels.dim() == 2):
            return functional.binary_cross_entropy_with_logits(logits, labels.float())
        return functional.cross_entropy(logits, labels)


def _real(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Return the mask of real tokens, bool, shape `(batch_size, num_tokens, 1)`."""
    real = (input_ids > 0).any(dim=-1, keepdim=True)
    return real if attention_mask is None else real & (attention_mask.unsqueeze(-1) != 0)


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
    _warned: dict[str, bool] = {}

    def __init__(
        self, num_characters: int = 50, split_punctuation: bool = True, **kwargs: Any
    ) -> None:
        self.num_characters = num_characters
        self.split_punctuation = split_punctuation
        kwargs.pop("added_tokens_decoder", None)
        super().__init__(
            num_characters=num_characters, split_punctuation=split_punctuation, **kwargs
        )
        _check_side(self.padding_side)

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def deprecation_warnings(self) -> dict[str, bool]:
        """The class's: collators write into it, and `datasets` hashes what an object stores."""
        return self._warned

    @deprecation_warnings.setter
    def deprecation_warnings(self, value: dict[str, bool]) -> None:
        pass

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
        _check_side(options.get("padding_side"))
        if not isinstance(text, str):
            check_batch(text)
        is_single = isinstance(text, str) or (
            is_split_into_words and all(isinstance(one, str) for one in text)
        )
        texts = [text] if is_single else list(text)
        if is_split_into_words:
            texts = tokenized_batch(texts)
        for number, one in enumerate([] if is_split_into_words else texts):
            if not isinstance(one, str):
                raise ValueError(
                    f"text {number} is {one!r}, expected a string; give is_split_into_words=True "
                    "for lists of words"
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
        # Rust has no strings with lone surrogates, which `token_row` drops, too.
        texts = [
            [_whole(word) or EMPTY_WORD for word in one] if is_split else _whole(one)
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
        found = self._get_padding_truncation_strategies(
            padding or False, truncation, max_length, multiple
        )
        return found[:3]

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
        _check_side(options.get("padding_side"))
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

    def save_vocabulary(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Write nothing: `tokenizer_config.json` holds everything."""
        return ()


def _check_side(side: str | None) -> None:
    if side not in (None, "right"):
        raise ValueError(f"padding_side is {side!r}, expected 'right': padding follows the tokens")


def _whole(text: str) -> str:
    return text.encode("utf-8", "ignore").decode("utf-8")


def _padded_length(lengths: list[int], padding: str, max_length: int, multiple: int | None) -> int:
    """Return the number of tokens to pad to; 0 for no padding."""
    if padding == "do_not_pad":
        return 0
    length = max_length if padding == "max_length" else max(lengths, default=0)
    return -(-length // multiple) * multiple if multiple else length


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """
    Pipeline `token-classification` that knows that a token of `ElmoTokenizer` is a whole word. It
    is the stock pipeline for every other tokenizer.
    """

    def check_model_type(self, supported_models: Any) -> None:
        """Accept `ElmoForTokenClassification`, which transformers' own list does not have."""
        if not isinstance(self.model, ElmoForTokenClassification):
            super().check_model_type(supported_models)

    def gather_pre_entities(
        self, sentence: str, input_ids: Any, scores: Any, offsets: Any, *rest: Any, **words: Any
    ) -> list[dict[str, Any]]:
        """Return text, scores and place of each word."""
        if not isinstance(self.tokenizer, ElmoTokenizer):
            return super().gather_pre_entities(sentence, input_ids, scores, offsets, *rest, **words)
        places = [(int(start), int(end)) for start, end in offsets]
        if words.get("word_to_chars_map") is not None:
            places = [tuple(words["word_to_chars_map"][one]) for one in words["word_ids"]]
        found = (
            {"word": sentence[start:end], "start": start, "end": end, "is_subword": False}
            for start, end in places
        )
        return [
            {**one, "scores": scores[i], "index": i}
            for i, one in enumerate(found)
            if not rest[0][i]  # the mask of special tokens: padding
        ]


transformers.AutoConfig.register("elmo", ElmoConfig)
transformers.AutoTokenizer.register(ElmoConfig, slow_tokenizer_class=ElmoTokenizer)
transformers.AutoModel.register(ElmoConfig, ElmoModel)
transformers.AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification)
transformers.AutoModelForSequenceClassification.register(ElmoConfig, ElmoForSequenceClassification)
PIPELINE_REGISTRY.supported_tasks["token-classification"]["impl"] = ElmoTokenClassificationPipeline
