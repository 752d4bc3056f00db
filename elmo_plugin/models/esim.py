"""Enhanced sequential inference model (ESIM) for sentence pairs, with or without ELMo."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import check_dimensions_match
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, InputVariationalDropout, Seq2SeqEncoder, TextFieldEmbedder
from allennlp.modules.matrix_attention import MatrixAttention
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import get_text_field_mask, masked_max, masked_softmax, weighted_sum
from allennlp.training.metrics import CategoricalAccuracy

from elmo_plugin.metrics.unseen_labels import UnseenLabels
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement
from elmo_plugin.modules.predicted_labels import add_labels


@Model.register("esim", exist_ok=True)
class ESIM(Model):
    """
    Sequential model of Chen et al. 2017, "Enhanced LSTM for natural language inference". Premise
    and hypothesis are encoded, and each attends to the other. A second encoder reads the comparison
    of each token with the other sentence. The outputs of this encoder are pooled and classified.

    Registered as a `Model` with name "esim".

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the token indexers' output. If `elmo` is given, the indexer `elmo` is left out.
    encoder : `Seq2SeqEncoder`
        Encodes premise and hypothesis, with the same weights.
    matrix_attention : `MatrixAttention`
        Scores each premise token against each hypothesis token.
    projection_feedforward : `FeedForward`
        Computes the input of `inference_encoder` from `[h; c; h - c; h * c]`, of width `4 *
        encoder_output_dim`. `h` is a token's encoding, and `c` the mean of the other sentence's
        encodings, weighted by attention.
    inference_encoder : `Seq2SeqEncoder`
        Second encoder; reads the output of `projection_feedforward`.
    output_feedforward : `FeedForward`
        Applied to the pooled vector, of width `4 * inference_output_dim`: the mean and the maximum
        of the premise, then those of the hypothesis.
    output_logit : `FeedForward`
        Computes one logit for each label.
    dropout : `float`, optional (default = `0.5`)
        Probability of variational dropout before both encoders, and of dropout after pooling.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)
    elmo : `Elmo`, optional (default = `None`)
        Reads the token indexer `elmo`. ELMo may be part of `text_field_embedder` instead.
    use_input_elmo, use_output_elmo : `bool`, optional (default = `False`)
        The first concatenates ELMo to the input of `encoder`, the second to its output.
    attention_dropout : `float`, optional (default = `0.0`)
        Dropout probability before `projection_feedforward`; 0.5 in Peters et al. 2018 (appendix).

    # Raises

    `ConfigurationError`
        If dimensions do not match, or `elmo` and the flags `use_*_elmo` contradict each other.
    """

    default_predictor = "textual_entailment"

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        encoder: Seq2SeqEncoder,
        matrix_attention: MatrixAttention,
        projection_feedforward: FeedForward,
        inference_encoder: Seq2SeqEncoder,
        output_feedforward: FeedForward,
        output_logit: FeedForward,
        dropout: float = 0.5,
        initializer: InitializerApplicator = InitializerApplicator(),  # noqa: B008
        elmo: Optional[Elmo] = None,
        use_input_elmo: bool = False,
        use_output_elmo: bool = False,
        attention_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self._elmo_placement = ElmoPlacement(
            elmo,
            text_field_embedder,
            use_input_elmo=use_input_elmo,
            use_output_elmo=use_output_elmo,
        )
        self._text_field_embedder = text_field_embedder
        self._elmo = elmo
        self._encoder = encoder
        self._matrix_attention = matrix_attention
        self._projection_feedforward = projection_feedforward
        self._inference_encoder = inference_encoder
        self._output_feedforward = output_feedforward
        self._output_logit = output_logit
        self.dropout = torch.nn.Dropout(dropout)
        self._attention_dropout = torch.nn.Dropout(attention_dropout)
        self.rnn_input_dropout = InputVariationalDropout(dropout)
        self._accuracy = CategoricalAccuracy()
        self._unseen_labels = UnseenLabels(vocab)
        self._loss = torch.nn.CrossEntropyLoss()
        self._check_dimensions()
        initializer(self)

    def _check_dimensions(self) -> None:
        encoded_dim = self._elmo_placement.output_dim(self._encoder)
        self._elmo_placement.check_input_of(self._encoder, "encoder")
        check_dimensions_match(
            encoded_dim * 4,
            self._projection_feedforward.get_input_dim(),
            "4 * encoder output dim (with ELMo, if at the output)",
            "projection_feedforward input dim",
        )
        check_dimensions_match(
            self._projection_feedforward.get_output_dim(),
            self._inference_encoder.get_input_dim(),
            "projection_feedforward output dim",
            "inference_encoder input dim",
        )
        check_dimensions_match(
            self._inference_encoder.get_output_dim() * 4,
            self._output_feedforward.get_input_dim(),
            "4 * inference_encoder output dim",
            "output_feedforward input dim",
        )

    def forward(
        self,
        premise: TextFieldTensors,
        hypothesis: TextFieldTensors,
        label: Optional[torch.Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, torch.Tensor]:
        """
        Classify a batch of sentence pairs.

        # Parameters

        premise, hypothesis : `TextFieldTensors`
        label : `torch.Tensor`, optional (default = `None`)
            Label ids, shape `(batch_size,)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            Not used.

        # Returns

        `Dict[str, torch.Tensor]`
            `label_logits` and `label_probs`, shape `(batch_size, num_labels)`, in the order of the
            vocabulary's namespace `labels`. With `label` also the scalar `loss`.
        """
        sentences = (premise, hypothesis)
        masks = [get_text_field_mask(tokens) for tokens in sentences]
        embedded = [
            self._elmo_placement.embed(tokens, self._text_field_embedder, self._elmo)
            for tokens in sentences
        ]
        inputs = [self.rnn_input_dropout(self._elmo_placement(one)) for one, _ in embedded]
        # Shape: (batch_size, number of premise or hypothesis tokens, encoded_dim)
        encoded = [
            self._elmo_placement.concatenate(self._encoder(one, mask), output_elmo)
            for one, mask, (_, output_elmo) in zip(inputs, masks, embedded)
        ]

        # Shape: (batch_size, premise tokens, hypothesis tokens); Chen et al., equation 11
        encoded_premise, encoded_hypothesis = encoded
        similarity = self._matrix_attention(encoded_premise, encoded_hypothesis)
        hypothesis_weights = masked_softmax(similarity, masks[1])
        premise_weights = masked_softmax(similarity.transpose(1, 2).contiguous(), masks[0])
        attended = [
            weighted_sum(encoded_hypothesis, hypothesis_weights),
            weighted_sum(encoded_premise, premise_weights),
        ]
        projected = [self._project(*both) for both in zip(encoded, attended)]
        projected = [self.rnn_input_dropout(one) for one in projected]
        # Shape: (batch_size, 2 * inference_output_dim) for each sentence
        pooled = [self._compose(*both) for both in zip(projected, masks)]
        logits = self._output_logit(
            self._output_feedforward(self.dropout(torch.cat(pooled, dim=1)))
        )
        output = {"label_logits": logits, "label_probs": logits.softmax(dim=-1)}
        if label is not None:
            label, seen = self._unseen_labels.find(label.long().view(-1), self.training)
            # AllenNLP needs a loss from every batch or from none.
            output["loss"] = (
                self._loss(logits[seen], label[seen]) if seen.any() else logits.new_zeros(())
            )
            self._accuracy(logits, label)
        return output

    def _project(self, encoded: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        # Chen et al., equations 14 and 15.
        compared = torch.cat([encoded, attended, encoded - attended, encoded * attended], dim=-1)
        return self._projection_feedforward(self._attention_dropout(compared))

    def _compose(self, projected: torch.Tensor, mask: torch.BoolTensor) -> torch.Tensor:
        # Chen et al., equations 18 to 20: mean and maximum over the real tokens.
        composed = self._inference_encoder(projected, mask)
        mask = mask.unsqueeze(-1)  # type: ignore[assignment]
        mean = (composed * mask).sum(dim=1) / mask.sum(dim=1)
        return torch.cat([mean, masked_max(composed, mask, dim=1)], dim=1)

    def make_output_human_readable(
        self, output_dict: Dict[str, torch.Tensor]
    ) -> Dict[str, torch.Tensor]:
        """Add each pair's `label` and its `probabilities` by label; see `add_labels`."""
        return add_labels(output_dict, output_dict["label_probs"], self.vocab)

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """Return `accuracy`, from 0 to 1. `reset` sets the counts to 0."""
        if reset:
            self._unseen_labels.warn()
        return {"accuracy": self._accuracy.get_metric(reset)}
