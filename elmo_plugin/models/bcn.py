"""Biattentive classification network for sentences, with or without ELMo."""

from typing import Any, Dict, Optional, Union

import torch
from allennlp.common.checks import check_dimensions_match
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, Maxout, Seq2SeqEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import get_text_field_mask, masked_max, masked_softmax, weighted_sum
from allennlp.training.metrics import CategoricalAccuracy

from elmo_plugin.metrics.unseen_labels import UnseenLabels
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement
from elmo_plugin.modules.predicted_labels import add_labels


@Model.register("bcn", exist_ok=True)
class BiattentiveClassificationNetwork(Model):
    """
    Classifier of McCann et al. 2017, "Learned in translation: contextualized word vectors", section
    5. The text is encoded, attends to itself, and is encoded again by the integrator. The outputs
    of the integrator are pooled by maximum, minimum, mean and self-attention.

    The `output_layer` of McCann et al. is a `Maxout`, that of Peters et al. 2018 (appendix) a
    `FeedForward` of ReLU layers with dropout.

    Registered as a `Model` with name "bcn".

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the token indexers' output. If `elmo` is given, the indexer `elmo` is left out.
    embedding_dropout : `float`
        Dropout probability of the embedded text, including ELMo if it is used at the input.
    pre_encode_feedforward : `FeedForward`
        Applied to every embedded token before `encoder`.
    encoder : `Seq2SeqEncoder`
        Encodes the text before it attends to itself.
    integrator : `Seq2SeqEncoder`
        Second encoder. For a token's encoding `h` and the attention-weighted mean `c` of all
        encodings, its input is `[h; h - c; h * c]`, of width `3 * encoder_output_dim`.
    integrator_dropout : `float`
        Dropout probability of the pooled vector.
    output_layer : `Union[FeedForward, Maxout]`
        Computes one logit for each label from the pooled vector. Its input width is `4 *
        integrator_output_dim`, or `4 * (integrator_output_dim + embedding_dim)` with ELMo at the
        integrator's output.
    elmo : `Elmo`, optional (default = `None`)
        Reads the character ids of the token indexer named `elmo`.
    use_input_elmo, use_integrator_output_elmo : `bool`, optional (default = `False`)
        The first concatenates ELMo to the input of `pre_encode_feedforward`, the second to the
        output of `integrator`.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)

    # Raises

    `ConfigurationError`
        If dimensions do not match, or `elmo` and the flags `use_*_elmo` contradict each other.
    """

    default_predictor = "text_classifier"

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        embedding_dropout: float,
        pre_encode_feedforward: FeedForward,
        encoder: Seq2SeqEncoder,
        integrator: Seq2SeqEncoder,
        integrator_dropout: float,
        output_layer: Union[FeedForward, Maxout],
        elmo: Optional[Elmo] = None,
        use_input_elmo: bool = False,
        use_integrator_output_elmo: bool = False,
        initializer: InitializerApplicator = InitializerApplicator(),  # noqa: B008
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self._elmo_placement = ElmoPlacement(
            elmo,
            text_field_embedder,
            use_input_elmo=use_input_elmo,
            use_integrator_output_elmo=use_integrator_output_elmo,
        )
        self._text_field_embedder = text_field_embedder
        self._elmo = elmo
        self._embedding_dropout = torch.nn.Dropout(embedding_dropout)
        self._pre_encode_feedforward = pre_encode_feedforward
        self._encoder = encoder
        self._integrator = integrator
        self._integrator_dropout = torch.nn.Dropout(integrator_dropout)
        integrated_dim = self._elmo_placement.output_dim(integrator)
        self._self_attentive_pooling_projection = torch.nn.Linear(integrated_dim, 1)
        self._output_layer = output_layer
        self._check_dimensions(integrated_dim)
        self.metrics = {
            "accuracy": CategoricalAccuracy(),
            "accuracy3": CategoricalAccuracy(top_k=3),
        }
        self._unseen_labels = UnseenLabels(vocab)
        self.loss = torch.nn.CrossEntropyLoss()
        initializer(self)

    def _check_dimensions(self, integrated_dim: int) -> None:
        self._elmo_placement.check_input_of(self._pre_encode_feedforward, "pre_encode_feedforward")
        check_dimensions_match(
            self._pre_encode_feedforward.get_output_dim(),
            self._encoder.get_input_dim(),
            "pre_encode_feedforward output dim",
            "encoder input dim",
        )
        check_dimensions_match(
            self._encoder.get_output_dim() * 3,
            self._integrator.get_input_dim(),
            "3 * encoder output dim",
            "integrator input dim",
        )
        check_dimensions_match(
            integrated_dim * 4,
            self._output_layer.get_input_dim(),
            "4 * integrator output dim (with ELMo, if at the output)",
            "output_layer input dim",
        )
        check_dimensions_match(
            self._output_layer.get_output_dim(),
            self.vocab.get_vocab_size("labels"),
            "output_layer output dim",
            "number of labels",
        )

    def forward(
        self, tokens: TextFieldTensors, label: Optional[torch.Tensor] = None
    ) -> Dict[str, torch.Tensor]:
        """
        Classify a batch of texts.

        # Parameters

        tokens : `TextFieldTensors`
        label : `torch.Tensor`, optional (default = `None`)
            Label ids, shape `(batch_size,)`.

        # Returns

        `Dict[str, torch.Tensor]`
            `logits` and `class_probabilities`, shape `(batch_size, num_labels)`, in the order of
            the vocabulary's namespace `labels`. With `label` also the scalar `loss`.
        """
        mask = get_text_field_mask(tokens)
        known = getattr(self._text_field_embedder, "_token_embedders", {})
        if self._elmo is None and "elmo" not in known:
            # As in AllenNLP, a model without ELMo ignores an indexer named `elmo`.
            tokens = {name: value for name, value in tokens.items() if name != "elmo"}
        embedded, output_elmo = self._elmo_placement.embed(
            tokens, self._text_field_embedder, self._elmo
        )

        embedded = self._elmo_placement(embedded)
        # Shape: (batch_size, num_tokens, encoder_output_dim)
        encoded = self._encoder(
            self._pre_encode_feedforward(self._embedding_dropout(embedded)), mask
        )
        # McCann et al., section 5: biattention of the text with itself.
        affinity = encoded.bmm(encoded.transpose(1, 2))
        attended = weighted_sum(encoded, masked_softmax(affinity, mask))
        compared = torch.cat([encoded, encoded - attended, encoded * attended], dim=-1)
        # Shape: (batch_size, num_tokens, integrated_dim)
        integrated = self._integrator(compared, mask)
        integrated = self._elmo_placement.concatenate(integrated, output_elmo)

        logits = self._output_layer(self._integrator_dropout(self._pool(integrated, mask)))
        output = {"logits": logits, "class_probabilities": logits.softmax(dim=-1)}
        if label is not None:
            label, seen = self._unseen_labels.find(label, self.training)
            # AllenNLP needs a loss from every batch or from none.
            output["loss"] = (
                self.loss(logits[seen], label[seen]) if seen.any() else logits.new_zeros(())
            )
            for metric in self.metrics.values():
                metric(logits, label)
        return output

    def _pool(self, integrated: torch.Tensor, mask: torch.BoolTensor) -> torch.Tensor:
        scores = self._self_attentive_pooling_projection(integrated).squeeze(-1)
        attention = weighted_sum(integrated, masked_softmax(scores, mask))
        mask = mask.unsqueeze(-1)  # type: ignore[assignment]
        maximum = masked_max(integrated, mask, dim=1)
        minimum = -masked_max(-integrated, mask, dim=1)
        mean = (integrated * mask).sum(dim=1) / mask.sum(dim=1)
        return torch.cat([maximum, minimum, mean, attention], dim=1)

    def make_output_human_readable(
        self, output_dict: Dict[str, torch.Tensor]
    ) -> Dict[str, torch.Tensor]:
        """Add each text's `label` and its `probabilities` by label; see `add_labels`."""
        return add_labels(output_dict, output_dict["class_probabilities"], self.vocab)

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the accuracy and the top-3 accuracy, from 0 to 1, as `accuracy` and `accuracy3`.
        `reset` sets the counts to 0.
        """
        if reset:
            self._unseen_labels.warn()
        return {name: metric.get_metric(reset) for name, metric in self.metrics.items()}
