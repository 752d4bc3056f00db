"""The enhanced sequential inference model for natural language inference, with or without ELMo."""

from typing import Any, Dict, List, Optional, Tuple

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


@Model.register("esim", exist_ok=True)
class ESIM(Model):
    """
    Chen et al. 2017, "Enhanced LSTM for natural language inference", the sequential model: both
    sentences are encoded, softly aligned to each other, compared, composed by a second encoder,
    pooled and classified.

    ELMo may stand in `text_field_embedder`, as in AllenNLP, or in `elmo`, which can place it at the
    input of `encoder`, at its output, or at both (Peters et al. 2018, table 3).

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds premise and hypothesis, all but the key `elmo` if `elmo` is given.
    encoder : `Seq2SeqEncoder`
        Encodes premise and hypothesis, the same one for both.
    matrix_attention : `MatrixAttention`
        Scores each premise token against each hypothesis token.
    projection_feedforward : `FeedForward`
        Projects the compared encodings, `4 * encoder_output_dim`, to the input of
        `inference_encoder`.
    inference_encoder : `Seq2SeqEncoder`
        Composes the projected comparisons.
    output_feedforward : `FeedForward`
        Takes the mean and maximum over both sentences, `4 * inference_output_dim`.
    output_logit : `FeedForward`
        Gives one logit per label.
    dropout : `float`, optional (default = `0.5`)
        Probability of variational dropout before both encoders and of dropout on the pooled vector.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)
    elmo : `Elmo`, optional (default = `None`)
        Its characters come under the key `elmo` of the text fields.
    use_input_elmo : `bool`, optional (default = `False`)
        Whether ELMo is concatenated to the input of `encoder`.
    use_output_elmo : `bool`, optional (default = `False`)
        Whether ELMo is concatenated to the output of `encoder`.
    attention_dropout : `float`, optional (default = `0.0`)
        Probability, on the compared encodings before `projection_feedforward`; 0.5 for ELMo in
        Peters et al. 2018 (appendix).

    # Raises

    `ConfigurationError`
        If dimensions do not fit, or `elmo` and the flags that place it do not agree.
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
        check_dimensions_match(
            self._elmo_placement.input_dim,
            self._encoder.get_input_dim(),
            "text field embedding dim (with ELMo, if at the input)",
            "encoder input dim",
        )
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
        # Parameters

        premise : `TextFieldTensors`
        hypothesis : `TextFieldTensors`
        label : `torch.Tensor`, optional (default = `None`)
            Label ids, shape `(batch_size,)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            Not used.

        # Returns

        `Dict[str, torch.Tensor]`
            `label_logits` and `label_probs`, shape `(batch_size, num_labels)`, and with `label` the
            scalar `loss`.
        """
        premise_mask = get_text_field_mask(premise)
        hypothesis_mask = get_text_field_mask(hypothesis)
        premise_input, premise_elmo = self._embed(premise)
        hypothesis_input, hypothesis_elmo = self._embed(hypothesis)
        premise_input = self.rnn_input_dropout(premise_input)
        hypothesis_input = self.rnn_input_dropout(hypothesis_input)
        # Shape: (batch_size, num_tokens, encoded_dim), with the tokens of each sentence
        encoded_premise = self._encode(premise_input, premise_mask, premise_elmo)
        encoded_hypothesis = self._encode(hypothesis_input, hypothesis_mask, hypothesis_elmo)

        # Shape: (batch_size, premise tokens, hypothesis tokens); Chen et al., equation 11
        similarity = self._matrix_attention(encoded_premise, encoded_hypothesis)
        hypothesis_weights = masked_softmax(similarity, hypothesis_mask)
        premise_weights = masked_softmax(similarity.transpose(1, 2).contiguous(), premise_mask)
        attended_hypothesis = weighted_sum(encoded_hypothesis, hypothesis_weights)
        attended_premise = weighted_sum(encoded_premise, premise_weights)

        projected_premise = self._project(encoded_premise, attended_hypothesis)
        projected_hypothesis = self._project(encoded_hypothesis, attended_premise)
        projected_premise = self.rnn_input_dropout(projected_premise)
        projected_hypothesis = self.rnn_input_dropout(projected_hypothesis)
        # Shape: (batch_size, 2 * inference_output_dim)
        pooled_premise = self._compose(projected_premise, premise_mask)
        pooled_hypothesis = self._compose(projected_hypothesis, hypothesis_mask)

        pooled = self.dropout(torch.cat([pooled_premise, pooled_hypothesis], dim=1))
        logits = self._output_logit(self._output_feedforward(pooled))
        output = {"label_logits": logits, "label_probs": logits.softmax(dim=-1)}
        if label is not None:
            label = label.long().view(-1)
            seen = self._unseen_labels.seen(label, self.training)
            if seen.any():
                output["loss"] = self._loss(logits[seen], label[seen])
            self._accuracy(logits, label)
        return output

    def _embed(self, tokens: TextFieldTensors) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        return self._elmo_placement.embed(tokens, self._text_field_embedder, self._elmo)

    def _encode(
        self, inputs: torch.Tensor, mask: torch.Tensor, output_elmo: Optional[torch.Tensor]
    ) -> torch.Tensor:
        return self._elmo_placement.concatenate(self._encoder(inputs, mask), output_elmo)

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
        """
        # Parameters

        output_dict : `Dict[str, torch.Tensor]`
            As `forward` returns it.

        # Returns

        `Dict[str, torch.Tensor]`
            The same with `label`, the most probable label of each pair as a string.
        """
        best = output_dict["label_probs"].argmax(dim=-1).view(-1).tolist()
        names = self.vocab.get_index_to_token_vocabulary("labels")
        output_dict["label"] = [names.get(i, str(i)) for i in best]  # type: ignore[assignment]
        return output_dict

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        # Parameters

        reset : `bool`, optional (default = `False`)
            Whether to start counting anew.

        # Returns

        `Dict[str, float]`
            `accuracy`, from 0 to 1.
        """
        if reset:
            self._unseen_labels.say()
        return {"accuracy": self._accuracy.get_metric(reset)}
