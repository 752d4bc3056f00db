"""A tagger with a conditional random field on top, with or without ELMo: the paper's NER."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, Seq2SeqEncoder, TextFieldEmbedder, TimeDistributed
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import get_text_field_mask
from allennlp.training.metrics import CategoricalAccuracy, FBetaVerboseMeasure, Metric

from elmo_plugin.metrics.conlleval import Conlleval
from elmo_plugin.metrics.unseen_labels import UnseenLabels
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement
from elmo_plugin.modules.weighted_crf import build_crf, weights_by_index


@Model.register("crf_tagger", exist_ok=True)
class CrfTagger(Model):
    """
    Encodes the tokens and tags them with a conditional random field (Lafferty et al. 2001; with a
    biLSTM: Huang et al. 2015; with characters: Lample et al. 2016; with a language model: Peters et
    al. 2017). Spans are scored as `conlleval` does it, in distributed training too.

    ELMo may stand in `text_field_embedder`, as in AllenNLP, or in `elmo`, which can place it at the
    input of `encoder`, at its output, or at both (Peters et al. 2018, table 3).

    Registered as a `Model` with name "crf_tagger".

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the tokens, all but the key `elmo` if `elmo` is given.
    encoder : `Seq2SeqEncoder`
        Between embedding and tagging.
    label_namespace : `str`, optional (default = `"labels"`)
        The tags' namespace.
    feedforward : `FeedForward`, optional (default = `None`)
        Applied to the encoder's output.
    label_encoding : `str`, optional (default = `None`)
        How tags write spans: `BIO`, `BIOUL`, `IOB1` or `BMES`. The next two need it.
    include_start_end_transitions : `bool`, optional (default = `True`)
        Whether the CRF has parameters for the first and the last tag.
    constrain_crf_decoding : `bool`, optional (default = `None`)
        Whether to predict well-formed taggings only. `None`: if `label_encoding` is given.
    calculate_span_f1 : `bool`, optional (default = `None`)
        Whether to score spans. `None`: if `label_encoding` is given.
    dropout : `float`, optional (default = `None`)
        Probability, on the input of the encoder and on its output.
    verbose_metrics : `bool`, optional (default = `False`)
        Whether to give the metrics of each type too. Without spans they are of each tag, and tags
        that training never saw are in none.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)
    top_k : `int`, optional (default = `1`)
        If more than 1, how many taggings `top_k_tags` holds for a sentence.
    ignore_loss_on_o_tags : `bool`, optional (default = `False`)
        Whether tokens with the gold tag `O` are left out of the loss.
    label_weights : `Dict[str, float]`, optional (default = `None`)
        Weights of tags in the loss; 1 for those not named.
    weight_strategy : `str`, optional (default = `None`)
        How `label_weights` act: on emission scores (`emission`, also for `None`), on transitions
        too (`emission_transition`), or as in Lannoy et al. 2019 (`lannoy`).
    elmo : `Elmo`, optional (default = `None`)
        Its characters come under the key `elmo` of the text field.
    use_input_elmo : `bool`, optional (default = `False`)
        Whether ELMo is concatenated to the input of `encoder`.
    use_output_elmo : `bool`, optional (default = `False`)
        Whether ELMo is concatenated to the output of `encoder`.

    # Raises

    `ConfigurationError`
        If arguments contradict each other or dimensions do not fit.
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
        self.dropout = torch.nn.Dropout(dropout) if dropout else None
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
        weights = None
        if label_weights is not None:
            weights = self.label_weights = weights_by_index(label_weights, vocab, label_namespace)
        self.crf = build_crf(
            self.num_tags, constraints, include_start_end_transitions, weights, weight_strategy
        )

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
        """Gives the size of the tag projection's input."""
        output_dim = self._elmo_placement.output_dim(self.encoder)
        check_dimensions_match(
            self._elmo_placement.input_dim,
            self.encoder.get_input_dim(),
            "text field embedding dim (with ELMo, if at the input)",
            "encoder input dim",
        )
        if self._feedforward is None:
            return output_dim
        check_dimensions_match(
            output_dim,
            self._feedforward.get_input_dim(),
            "encoder output dim (with ELMo, if at the output)",
            "feedforward input dim",
        )
        return self._feedforward.get_output_dim()

    def forward(  # type: ignore[override]
        self,
        tokens: TextFieldTensors,
        tags: Optional[torch.Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
        ignore_loss_on_o_tags: Optional[bool] = None,
        **kwargs: Any,
    ) -> Dict[str, Any]:
        """
        # Parameters

        tokens : `TextFieldTensors`
        tags : `torch.Tensor`, optional (default = `None`)
            Gold tag ids, shape `(batch_size, num_tokens)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            The `words` of each sentence.
        ignore_loss_on_o_tags : `bool`, optional (default = `None`)
            As in the constructor, for this batch; `None`: as there.
        kwargs : `Any`
            Further fields of a reader's instances; not used.

        # Returns

        `Dict[str, Any]`
            `logits`, shape `(batch_size, num_tokens, num_tags)`; `mask`, bool, shape `(batch_size,
            num_tokens)`; `tags`, a list of predicted tag ids for each sentence; with gold tags the
            scalar `loss`, summed over sentences; with metadata `words`; if `top_k` is more than 1
            `top_k_tags`, for each sentence a list of tag ids and their score.
        """
        mask = get_text_field_mask(tokens)
        embedded, output_elmo = self._elmo_placement.embed(
            tokens, self.text_field_embedder, self._elmo
        )
        # Shape: (batch_size, num_tokens, encoder output dim, with ELMo if it is placed there)
        encoded = self.encoder(self._drop(embedded), mask)
        encoded = self._elmo_placement.concatenate(encoded, output_elmo)
        encoded = self._drop(encoded)
        if self._feedforward is not None:
            encoded = self._feedforward(encoded)
        logits = self.tag_projection_layer(encoded)
        paths = self.crf.viterbi_tags(logits, mask, top_k=self.top_k)
        output = {"logits": logits, "mask": mask, "tags": [best[0][0] for best in paths]}
        if self.top_k > 1:
            output["top_k_tags"] = paths
        if tags is not None:
            if ignore_loss_on_o_tags is None:
                ignore_loss_on_o_tags = self.ignore_loss_on_o_tags
            loss_mask: torch.Tensor = mask
            if ignore_loss_on_o_tags:
                outside = self.vocab.get_token_index("O", namespace=self.label_namespace)
                loss_mask = mask & (tags != outside)
            # The CRF scores whole sentences.
            seen = self._unseen_labels.seen(tags, self.training, mask)
            known = seen.all(dim=1)
            if known.any():
                output["loss"] = -self.crf(logits[known], tags[known], loss_mask[known])
            self._score(output["tags"], logits, tags, mask)
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
        return output

    def _drop(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.dropout is None else self.dropout(tensor)

    def _score(
        self,
        predicted: List[List[int]],
        logits: torch.Tensor,
        tags: torch.Tensor,
        mask: torch.BoolTensor,
    ) -> None:
        # Metrics take scores, the CRF predicts taggings: a predicted tag scores 1.
        scores = torch.zeros_like(logits)
        for row, path in enumerate(predicted):
            scores[row, torch.arange(len(path)), torch.tensor(path, dtype=torch.long)] = 1
        for metric in self.metrics.values():
            metric(scores, tags, mask)
        counted: Any = mask
        if isinstance(self._span_metric, FBetaVerboseMeasure):  # has a place for known tags alone
            counted = mask & (tags >= 0)
        if self._span_metric is not None:
            self._span_metric(scores, tags, counted)

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """
        Turns the tag ids of `tags` and `top_k_tags` into tags; each of the latter becomes a
        dictionary with `tags` and `score`.
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
        # Returns

        `Dict[str, float]`
            `accuracy` and `accuracy3` of single tags; if spans are scored `precision-overall`,
            `recall-overall` and `f1-measure-overall`; with `verbose_metrics` those of each type.
        """
        if reset:
            self._unseen_labels.say()
        metrics = {name: metric.get_metric(reset) for name, metric in self.metrics.items()}
        if self._span_metric is not None:
            span_metrics = self._span_metric.get_metric(reset)
            for name, value in span_metrics.items():
                if self._verbose_metrics or "overall" in name:
                    metrics[name] = value
        return metrics
