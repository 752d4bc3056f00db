"""Configuration and models of Hugging Face transformers around a biLM."""

from typing import Any

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PretrainedConfig, PreTrainedModel
from transformers import modeling_outputs as outputs

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.options import options_dict, parse_options
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.model.scalar_mix import ScalarMix


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
        Return a new model around a biLM, in evaluation mode as `from_pretrained` does.

        # Parameters

        options_file, weight_file
            The biLM's name or files; see `Elmo`.
        config : `Any`
            Further arguments of `ElmoConfig`, such as `num_labels`, `id2label` and `label2id`.
        """
        bilm = load_bilm(options_file, weight_file)
        model = cls(ElmoConfig(options=options_dict(bilm.options), **config))
        model.base_model._elmo_lstm.load_state_dict(bilm.state_dict())
        return model.eval()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a folder or a repository of the hub; see transformers' `PreTrainedModel`."""
        found = super().from_pretrained(*args, **kwargs)
        model = found[0] if isinstance(found, tuple) else found
        # Transformers 5 makes every parameter trainable.
        model.base_model._elmo_lstm.requires_grad_(model.config.requires_grad)
        return found

    def get_input_embeddings(self) -> Any:
        """Raise a `NotImplementedError`: transformers means the vectors of a vocabulary."""
        raise NotImplementedError(
            "ELMo has no input embeddings that could be resized or disturbed: it computes each "
            "word from its characters"
        )

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
            If an argument that ELMo has no use for is given, or the weights are offloaded.
        """
        if token_type_ids is not None or inputs_embeds is not None or output_attentions:
            raise ValueError(
                "token_type_ids, inputs_embeds or output_attentions was given, expected none: ELMo "
                "reads characters and has no attention"
            )
        if self._elmo_lstm.device.type == "meta":
            raise ValueError(
                "the biLM's weights are on the device meta (offloaded by device_map, or not "
                "loaded), expected a device that computes: ELMo is small"
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
        is_row = problem is None and labels.shape == logits.shape
        if problem == "multi_label_classification" or is_row:
            return functional.binary_cross_entropy_with_logits(logits, labels.float())
        one_a_text = labels.flatten() if labels.numel() == len(logits) else labels
        return functional.cross_entropy(logits, one_a_text)


def _real(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Return the mask of real tokens, bool, shape `(batch_size, num_tokens, 1)`."""
    real = (input_ids > 0).any(dim=-1, keepdim=True)
    return real if attention_mask is None else real & (attention_mask.unsqueeze(-1) != 0)
