"""The biattentive classification network for sentences, with or without ELMo."""

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


@Model.register("bcn", exist_ok=True)
class BiattentiveClassificationNetwork(Model):
    """
    McCann et al. 2017, "Learned in translation: contextualized word vectors", section 5: the text
    is encoded, attends to itself, is integrated by a second encoder, pooled by maximum, minimum,
    mean and self-attention, and classified.

    McCann et al. end in a `Maxout` output layer. The paper of ELMo (Peters et al. 2018, appendix)
    puts ReLU feed-forward layers with dropout there: give `output_layer` as a `FeedForward`.

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the text, all but the key `elmo`, which it must not know.
    embedding_dropout : `float`
        Probability, on the embeddings (and ELMo at the input).
    pre_encode_feedforward : `FeedForward`
        Runs on every embedded token before `encoder`.
    encoder : `Seq2SeqEncoder`
        Encodes the text for the attention.
    integrator : `Seq2SeqEncoder`
        Takes the encoded tokens compared with what they attend to, `3 * encoder_output_dim`.
    integrator_dropout : `float`
        Probability, on the pooled vector.
    output_layer : `Union[FeedForward, Maxout]`
        Takes `4 * integrator_output_dim`, or `4 * (integrator_output_dim + embedding_dim)` with
        ELMo at the output, and gives one logit per label.
    elmo : `Elmo`, optional (default = `None`)
        Its characters come under the key `elmo` of the text field.
    use_input_elmo : `bool`, optional (default = `False`)
        Whether ELMo is concatenated to the input of `pre_encode_feedforward`.
    use_integrator_output_elmo : `bool`, optional (default = `False`)
        Whether ELMo is concatenated to the output of `integrator`.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)

    # Raises

    `ConfigurationError`
        If dimensions do not fit, or `elmo` and the flags that place it do not agree.
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
        check_dimensions_match(
            self._elmo_placement.input_dim,
            self._pre_encode_feedforward.get_input_dim(),
            "text field embedding dim (with ELMo, if at the input)",
            "pre_encode_feedforward input dim",
        )
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
        # Parameters

        tokens : `TextFieldTensors`
        label : `torch.Tensor`, optional (default = `None`)
            Label ids, shape `(batch_size,)`.

        # Returns

        `Dict[str, torch.Tensor]`
            `logits` and `class_probabilities`, shape `(batch_size, num_labels)`, and with `label`
            the scalar `loss`.
        """
        mask = get_text_field_mask(tokens)
        if self._elmo is None:
            # As in AllenNLP, an indexer `elmo` without ELMo in the model is allowed, and idle.
            tokens = {name: value for name, value in tokens.items() if name != "elmo"}
        embedded, output_elmo = self._elmo_placement.embed(
            tokens, self._text_field_embedder, self._elmo
        )

        # Shape: (batch_size, num_tokens, encoder_output_dim)
        encoded = self._encoder(
            self._pre_encode_feedforward(self._embedding_dropout(embedded)), mask
        )
        # McCann et al., section 5: biattention, whose two texts are the same one here.
        affinity = encoded.bmm(encoded.transpose(1, 2))
        attended = weighted_sum(encoded, masked_softmax(affinity, mask))
        compared = torch.cat([encoded, encoded - attended, encoded * attended], dim=-1)
        # Shape: (batch_size, num_tokens, integrated_dim)
        integrated = self._integrator(compared, mask)
        integrated = self._elmo_placement.concatenate(integrated, output_elmo)

        logits = self._output_layer(self._integrator_dropout(self._pool(integrated, mask)))
        output = {"logits": logits, "class_probabilities": logits.softmax(dim=-1)}
        if label is not None:
            seen = self._unseen_labels.seen(label, self.training)
            if seen.any():
                output["loss"] = self.loss(logits[seen], label[seen])
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
        """
        # Parameters

        output_dict : `Dict[str, torch.Tensor]`
            As `forward` returns it.

        # Returns

        `Dict[str, torch.Tensor]`
            The same with `label`, the most probable label of each text as a string.
        """
        output_dict["label"] = [  # type: ignore[assignment]
            self.vocab.get_token_from_index(i, namespace="labels")
            for i in output_dict["class_probabilities"].argmax(dim=-1).tolist()
        ]
        return output_dict

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        # Parameters

        reset : `bool`, optional (default = `False`)
            Whether to start counting anew.

        # Returns

        `Dict[str, float]`
            `accuracy` and `accuracy3` (the label is among the three most probable), from 0 to 1.
        """
        if reset:
            self._unseen_labels.say()
        return {name: metric.get_metric(reset) for name, metric in self.metrics.items()}
