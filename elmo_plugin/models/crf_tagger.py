"""Tagger with a conditional random field, with or without ELMo, for example for NER."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, Seq2SeqEncoder, TextFieldEmbedder, TimeDistributed
from allennlp.modules.conditional_random_field import (
    ConditionalRandomField,
    ConditionalRandomFieldWeightEmission,
    ConditionalRandomFieldWeightLannoy,
    ConditionalRandomFieldWeightTrans,
)
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import get_text_field_mask
from allennlp.training.metrics import CategoricalAccuracy, FBetaVerboseMeasure, Metric

from elmo_plugin.metrics.conlleval import Conlleval
from elmo_plugin.metrics.unseen_labels import UnseenLabels
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement

WEIGHTED_CRFS = {
    "emission": ConditionalRandomFieldWeightEmission,
    "emission_transition": ConditionalRandomFieldWeightTrans,
    "lannoy": ConditionalRandomFieldWeightLannoy,
}


@Model.register("crf_tagger", exist_ok=True)
class CrfTagger(Model):
    """
    Tagger that encodes the tokens and decodes their tags with a conditional random field. Examples
    are the biLSTM taggers of Huang et al. 2015 and Lample et al. 2016. Spans are scored by the
    metric `conlleval`, in distributed training too.

    Registered as a `Model` with name "crf_tagger".

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the token indexers' output. If `elmo` is given, the indexer `elmo` is left out.
    encoder : `Seq2SeqEncoder`
    label_namespace : `str`, optional (default = `"labels"`)
        Vocabulary namespace of the tags.
    feedforward : `FeedForward`, optional (default = `None`)
        Applied to the encoder's output.
    label_encoding : `str`, optional (default = `None`)
        Scheme of the tags: `BIO`, `BIOUL`, `IOB1` or `BMES`. `constrain_crf_decoding` and
        `calculate_span_f1` need it.
    include_start_end_transitions : `bool`, optional (default = `True`)
        If true, the CRF has parameters for the first and the last tag.
    constrain_crf_decoding : `bool`, optional (default = `None`)
        If true, only tag sequences that are well-formed in `label_encoding` are predicted. `None`
        means true if `label_encoding` is given.
    calculate_span_f1 : `bool`, optional (default = `None`)
        If true, spans are scored. `None` means true if `label_encoding` is given.
    dropout : `float`, optional (default = `None`)
        Dropout probability of the encoder's input and of its output.
    verbose_metrics : `bool`, optional (default = `False`)
        If true, the metrics include those of each span type. If spans are not scored, they include
        those of each tag in the vocabulary.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)
    top_k : `int`, optional (default = `1`)
        Number of tag sequences to find for each sentence. If above 1, they are in `top_k_tags`.
    ignore_loss_on_o_tags : `bool`, optional (default = `False`)
        If true, tokens with the gold tag `O` are left out of the loss.
    label_weights : `Dict[str, float]`, optional (default = `None`)
        Weights of tags in the loss. Tags that are not listed have weight 1.
    weight_strategy : `str`, optional (default = `None`)
        How `label_weights` apply: `emission` weights the emission scores, `emission_transition`
        also the transition scores, and `lannoy` follows Lannoy et al. 2019. `None`: `emission`.
    elmo : `Elmo`, optional (default = `None`)
        Reads the token indexer `elmo`. ELMo may be part of `text_field_embedder` instead.
    use_input_elmo, use_output_elmo : `bool`, optional (default = `False`)
        The first concatenates ELMo to the input of `encoder`, the second to its output.

    # Raises

    `ConfigurationError`
        If arguments contradict each other, or dimensions do not match.
    """

    default_predictor = "sentence_tagger"

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        encoder: Seq2SeqEncoder,
        label_namespace: str = "labels",
        feedforward: Optional[FeedForward] = None,
        label_encoding: Optional[str] = None,
        include_start_end_transitions: bool = True,
        constrain_crf_decoding: Optional[bool] = None,
        calculate_span_f1: Optional[bool] = None,
        dropout: Optional[float] = None,
        verbose_metrics: bool = False,
        initializer: InitializerApplicator = InitializerApplicator(),  # noqa: B008
        top_k: int = 1,
        ignore_loss_on_o_tags: bool = False,
        label_weights: Optional[Dict[str, float]] = None,
        weight_strategy: Optional[str] = None,
        elmo: Optional[Elmo] = None,
        use_input_elmo: bool = False,
        use_output_elmo: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self._elmo_placement = ElmoPlacement(
            elmo,
            text_field_embedder,
            use_input_elmo=use_input_elmo,
            use_output_elmo=use_output_elmo,
        )
        if constrain_crf_decoding is None:
            constrain_crf_decoding = label_encoding is not None
        if calculate_span_f1 is None:
            calculate_span_f1 = label_encoding is not None
        for name, value in (
            ("constrain_crf_decoding", constrain_crf_decoding),
            ("calculate_span_f1", calculate_span_f1),
        ):
            if value and not label_encoding:
                raise ConfigurationError(f"{name} is true, but no label_encoding is given")
        self.label_namespace = label_namespace
        self.label_encoding = label_encoding
        self.include_start_end_transitions = include_start_end_transitions
        self.calculate_span_f1 = calculate_span_f1
        self.top_k = top_k
        self.ignore_loss_on_o_tags = ignore_loss_on_o_tags
        self._verbose_metrics = verbose_metrics

        self.text_field_embedder = text_field_embedder
        self._elmo = elmo
        self.encoder = encoder
        self.dropout = torch.nn.Dropout(dropout or 0.0)
        self._feedforward = feedforward
        self._unseen_labels = UnseenLabels(vocab, label_namespace)
        self.num_tags = vocab.get_vocab_size(label_namespace)
        self.tag_projection_layer = TimeDistributed(
            torch.nn.Linear(self._check_dimensions(), self.num_tags)
        )
        labels = vocab.get_index_to_token_vocabulary(label_namespace)
        constraints = None
        if label_encoding is not None and constrain_crf_decoding:
            constraints = allowed_transitions(label_encoding, labels)
        self.crf = self._make_crf(constraints, label_weights, weight_strategy)

        self.metrics: Dict[str, Metric] = {
            "accuracy": CategoricalAccuracy(),
            "accuracy3": CategoricalAccuracy(top_k=3),
        }
        self._span_metric: Optional[Metric] = None
        if label_encoding is not None and calculate_span_f1:
            self._span_metric = Conlleval(vocab, label_namespace, label_encoding=label_encoding)
        elif verbose_metrics:
            self._span_metric = FBetaVerboseMeasure(index_to_label=labels)
        initializer(self)

    def _check_dimensions(self) -> int:
        """Check dimensions and return the width of the tag projection's input."""
        self._elmo_placement.check_input_of(self.encoder, "encoder")
        output_dim = self._elmo_placement.output_dim(self.encoder)
        if self._feedforward is None:
            return output_dim
        check_dimensions_match(
            output_dim,
            self._feedforward.get_input_dim(),
            "encoder output dim (with ELMo, if at the output)",
            "feedforward input dim",
        )
        return self._feedforward.get_output_dim()

    def _make_crf(
        self, constraints: Any, weights: Optional[Dict[str, float]], strategy: Optional[str]
    ) -> ConditionalRandomField:
        """Check the weights of labels, and build AllenNLP's CRF with or without them."""
        sizes = self.num_tags, constraints, self.include_start_end_transitions
        if weights is None:
            if strategy is not None:
                raise ConfigurationError(
                    f"found weight_strategy {strategy} without label_weights; "
                    "expected both or neither"
                )
            return ConditionalRandomField(*sizes)
        strategy = strategy or "emission"
        if strategy not in WEIGHTED_CRFS:
            raise ConfigurationError(
                f"unknown weight_strategy: {strategy}; expected {', '.join(WEIGHTED_CRFS)}"
            )
        labels = self.vocab.get_token_to_index_vocabulary(self.label_namespace)
        for label in weights:
            if label not in labels:
                raise ConfigurationError(
                    f"label_weights names {label!r}, which is not in the vocabulary's namespace "
                    f"{self.label_namespace!r}; expected one of {', '.join(labels)}"
                )
        self.label_weights = [weights.get(label, 1.0) for label in labels]
        return WEIGHTED_CRFS[strategy](sizes[0], self.label_weights, *sizes[1:])

    def forward(  # type: ignore[override]
        self,
        tokens: TextFieldTensors,
        tags: Optional[torch.Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
        ignore_loss_on_o_tags: Optional[bool] = None,
        **kwargs: Any,
    ) -> Dict[str, Any]:
        """
        Tag a batch of sentences.

        # Parameters

        tokens : `TextFieldTensors`
        tags : `torch.Tensor`, optional (default = `None`)
            Gold tag ids, shape `(batch_size, num_tokens)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            The `words` of each sentence.
        ignore_loss_on_o_tags : `bool`, optional (default = `None`)
            Overrides the constructor's argument for this batch.
        kwargs : `Any`
            Other fields of a reader's instances; ignored.

        # Returns

        `Dict[str, Any]`
            `tags`, a list of predicted tag ids for each sentence; `mask`, bool, shape `(batch_size,
            num_tokens)`; `logits`, shape `(batch_size, num_tokens, num_tags)`. With `metadata` also
            `words`. With `top_k` above 1 also `top_k_tags`, a list of pairs `(tag ids, score)` for
            each sentence, best first. With `tags` also the scalar `loss`, summed over sentences.
        """
        mask = get_text_field_mask(tokens)
        embedded, output_elmo = self._elmo_placement.embed(
            tokens, self.text_field_embedder, self._elmo
        )
        embedded = self._elmo_placement(embedded)
        encoded = self.encoder(self.dropout(embedded), mask)
        # Shape: (batch_size, num_tokens, encoder output dim, plus ELMo's if it is placed there)
        encoded = self._elmo_placement.concatenate(encoded, output_elmo)
        encoded = self.dropout(encoded)
        if self._feedforward is not None:
            encoded = self._feedforward(encoded)
        logits = self.tag_projection_layer(encoded)
        paths = self.crf.viterbi_tags(logits, mask, top_k=self.top_k)
        # Predictors write the keys of `output` in this order, so put the words first.
        output: Dict[str, Any] = {}
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
        output["tags"] = [best[0][0] for best in paths]
        if self.top_k > 1:
            output["top_k_tags"] = paths
        output.update(mask=mask, logits=logits)
        if tags is not None:
            tags, seen = self._unseen_labels.find(tags, self.training, mask)
            if ignore_loss_on_o_tags is None:
                ignore_loss_on_o_tags = self.ignore_loss_on_o_tags
            loss_mask: torch.Tensor = mask
            if ignore_loss_on_o_tags:
                outside = self.vocab.get_token_index("O", namespace=self.label_namespace)
                loss_mask = mask & (tags != outside)
            # The CRF's loss is per sentence, so leave out each sentence with a tag outside the
            # vocabulary, or without a tag that counts, which AllenNLP's CRF cannot index.
            known = seen.all(dim=1) & loss_mask.any(dim=1)
            output["loss"] = -self.crf(logits[known], tags[known], loss_mask[known])
            self._score(output["tags"], logits, tags, mask)
        return output

    def _score(
        self,
        predicted: List[List[int]],
        logits: torch.Tensor,
        tags: torch.Tensor,
        mask: torch.BoolTensor,
    ) -> None:
        # The metrics expect a score for each tag. Give the predicted tag 1 and all others 0.
        scores = torch.zeros_like(logits)
        for row, path in enumerate(predicted):
            scores[row, torch.arange(len(path)), torch.tensor(path, dtype=torch.long)] = 1
        for metric in self.metrics.values():
            metric(scores, tags, mask)
        counted: Any = mask
        if isinstance(self._span_metric, FBetaVerboseMeasure):  # it fails on negative tag ids
            counted = mask & (tags >= 0)
        if self._span_metric is not None:
            self._span_metric(scores, tags, counted)

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """
        Replace the tag ids in `tags` and `top_k_tags` by the tags' names. Each entry of
        `top_k_tags` becomes a dictionary with `tags` and `score`.
        """

        def names(path: List[int]) -> List[str]:
            return [self.vocab.get_token_from_index(tag, self.label_namespace) for tag in path]

        output_dict["tags"] = [names(path) for path in output_dict["tags"]]
        if "top_k_tags" in output_dict:
            output_dict["top_k_tags"] = [
                [{"tags": names(path), "score": score} for path, score in paths]
                for paths in output_dict["top_k_tags"]
            ]
        return output_dict

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return metrics from 0 to 1: the accuracy of tags as `accuracy` and their top-3 accuracy as
        `accuracy3`. If spans are scored, add `precision-overall`, `recall-overall` and
        `f1-measure-overall`. With `verbose_metrics` also add those of each span type, or of each
        tag if spans are not scored. `reset` sets the counts to 0.
        """
        if reset:
            self._unseen_labels.warn()
        metrics = {name: metric.get_metric(reset) for name, metric in self.metrics.items()}
        if self._span_metric is not None:
            span_metrics = self._span_metric.get_metric(reset)
            for name, value in span_metrics.items():
                if self._verbose_metrics or "overall" in name:
                    metrics[name] = value
        return metrics
