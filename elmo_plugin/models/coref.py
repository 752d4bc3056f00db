"""End-to-end coreference resolution, with or without ELMo."""

import functools
import math
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import (
    FeedForward,
    GatedSum,
    Seq2SeqEncoder,
    TextFieldEmbedder,
    TimeDistributed,
)
from allennlp.modules.span_extractors import EndpointSpanExtractor, SelfAttentiveSpanExtractor
from allennlp.modules.token_embedders import Embedding
from allennlp.nn import InitializerApplicator, util

from elmo_plugin.bilm.kernels.plain import is_plain, plain_class
from elmo_plugin.metrics.conll_coref import ConllCorefScores, antecedents_to_clusters
from elmo_plugin.metrics.mention_recall import MentionRecall
from elmo_plugin.modules.coref.pairs import (
    Antecedents,
    coarse_antecedents,
    expected_antecedents,
    marginal_loss,
    nearest_antecedents,
    pair_scores,
)
from elmo_plugin.modules.coref.sentences import Documents, Sentences, from_metadata, random_window
from elmo_plugin.modules.coref.spans import SpanParts, SpanVectors, kept_spans, mention_scores
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement

NUM_DISTANCE_BUCKETS = 10

plain_class(EndpointSpanExtractor)
plain_class(SelfAttentiveSpanExtractor)


@plain_class
class _HeadExtractor(SelfAttentiveSpanExtractor):
    """Extractor that sums `tokens`, weighted by scores of `scored`."""

    def forward(  # type: ignore[override]
        self, tokens: Any, spans: Any, scored: Any
    ) -> torch.Tensor:
        with_scores = torch.cat([tokens, self._global_attention(scored)], dim=-1)
        selected, mask = util.batched_span_select(with_scores, spans)
        weights = util.masked_softmax(selected[..., -1], mask)
        return util.weighted_sum(selected[..., :-1], weights)


@Model.register("coref", exist_ok=True)
class CoreferenceResolver(Model):
    """
    Coreference model of Lee et al. 2017. It scores candidate spans as mentions and keeps the best.
    Each kept span is linked to its best antecedent or to none. `coarse_to_fine` and
    `inference_order` are from Lee et al. 2018.

    The arguments up to `initializer` are those of allennlp-models' `coref`. With them alone, both
    models give the same results; this one needs fewer operations. The other arguments, all off by
    default, add what e2e-coref (at 53c4116) has, the model of Peters et al. 2018.

    Registered as a `Model` with name "coref".

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the token indexers' output. If `elmo` is given, the indexer `elmo` is left out.
    context_layer : `Seq2SeqEncoder`
        Encodes the embedded tokens.
    mention_feedforward, antecedent_feedforward : `FeedForward`
        The first is applied to a span's vector, the second to the vector of a pair of spans. Each
        is followed by a linear layer that computes a score.
    feature_size : `int`
        Embedding dimension of a span's width and of each feature of a pair.
    max_span_width : `int`
        Largest number of tokens in a candidate span; the same as the reader's.
    spans_per_word : `float`
        Number of spans to keep for each token.
    max_antecedents : `int`
        Largest number of antecedents to score for a span.
    coarse_to_fine : `bool`, optional (default = `False`)
        If true, the antecedents to score are those with the highest coarse score (see
        `coarse_antecedents`), else the nearest kept spans.
    inference_order : `int`, optional (default = `1`)
        Number of rounds in which pairs are scored. Between two rounds, each span's vector is
        replaced by a gated sum of this vector and the expected antecedent.
    lexical_dropout : `float`, optional (default = `0.2`)
        Dropout probability of the embedded tokens, ELMo included.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)
    elmo : `Elmo`, optional (default = `None`)
        Reads the character ids of the token indexer named `elmo`.
    use_input_elmo : `bool`, optional (default = `False`)
        If true, ELMo is concatenated to the input of `context_layer`, but not used in span heads.
    encode_by_sentence : `bool`, optional (default = `False`)
        If true, the embedder, the biLM and `context_layer` run on each sentence separately, else on
        the document as one sequence.
    use_speakers : `bool`, optional (default = `False`)
        If true, each pair has a feature that says whether the first tokens of both spans have the
        same speaker.
    genres : `List[str]`, optional (default = `None`)
        Names of the genres. If given, each pair has the document's genre as a feature. The feature
        is a zero vector for a document without a genre. An unknown genre is an error.
    head_scores_from_context : `bool`, optional (default = `False`)
        A span's head is the attention-weighted sum of its embedded tokens. If true, the attention
        scores are computed from the outputs of `context_layer`, else from the embedded tokens.
    allow_crossing_spans : `bool`, optional (default = `True`)
        If false, no two kept spans overlap partially. `spans_per_word` then refers to each
        document's own length instead of that of the longest document in the batch.
    max_training_sentences : `int`, optional (default = `None`)
        In training, longer documents are cropped to this number of consecutive sentences. The first
        of these sentences is drawn at random each time.
    context_dropout, feature_dropout : `float`, optional (default = `0.0`)
        The first is the dropout probability of the outputs of `context_layer`, the second that of
        embedded span widths and of the features of pairs.

    # Raises

    `ConfigurationError`
        If arguments contradict each other, or dimensions do not match.
    """

    default_predictor = "coreference_resolution"

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        context_layer: Seq2SeqEncoder,
        mention_feedforward: FeedForward,
        antecedent_feedforward: FeedForward,
        feature_size: int,
        max_span_width: int,
        spans_per_word: float,
        max_antecedents: int,
        coarse_to_fine: bool = False,
        inference_order: int = 1,
        lexical_dropout: float = 0.2,
        initializer: InitializerApplicator = InitializerApplicator(),  # noqa: B008
        elmo: Optional[Elmo] = None,
        use_input_elmo: bool = False,
        encode_by_sentence: bool = False,
        use_speakers: bool = False,
        genres: Optional[List[str]] = None,
        head_scores_from_context: bool = False,
        allow_crossing_spans: bool = True,
        max_training_sentences: Optional[int] = None,
        context_dropout: float = 0.0,
        feature_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self._elmo_placement = ElmoPlacement(
            elmo, text_field_embedder, use_input_elmo=use_input_elmo
        )
        for name, number in (
            ("feature_size", feature_size),
            ("max_span_width", max_span_width),
            ("spans_per_word", spans_per_word),
            ("max_antecedents", max_antecedents),
            ("inference_order", inference_order),
            ("max_training_sentences", max_training_sentences),
        ):
            if number is not None and number <= 0:
                raise ConfigurationError(f"found {name} {number}, expected more than 0")
        if genres is not None and not (genres and all(genres) and len(set(genres)) == len(genres)):
            raise ConfigurationError(f"found genres {genres}, expected different names, none empty")
        self._text_field_embedder = text_field_embedder
        self._elmo = elmo
        self._context_layer = context_layer
        self._mention_feedforward = TimeDistributed(mention_feedforward)
        self._mention_scorer = TimeDistributed(
            torch.nn.Linear(mention_feedforward.get_output_dim(), 1)
        )
        self._antecedent_feedforward = TimeDistributed(antecedent_feedforward)
        self._antecedent_scorer = TimeDistributed(
            torch.nn.Linear(antecedent_feedforward.get_output_dim(), 1)
        )
        # The extractors hold parameters, named as in allennlp-models. They are called if they are
        # not plain; see `_span_vectors`.
        self._endpoint_span_extractor = EndpointSpanExtractor(
            context_layer.get_output_dim(),
            num_width_embeddings=max_span_width,
            span_width_embedding_dim=feature_size,
        )
        self._head_scores_from_context = head_scores_from_context
        scored = context_layer if head_scores_from_context else text_field_embedder
        self._head_kind = _HeadExtractor if head_scores_from_context else SelfAttentiveSpanExtractor
        self._attentive_span_extractor = self._head_kind(scored.get_output_dim())
        self._distance_embedding = Embedding(feature_size, NUM_DISTANCE_BUCKETS)
        self._speaker_embedding = Embedding(feature_size, 2) if use_speakers else None
        self._genres = genres
        self._genre_embedding = Embedding(feature_size, len(genres)) if genres else None

        self._encode_by_sentence = encode_by_sentence
        self._max_span_width = max_span_width
        self._spans_per_word = spans_per_word
        self._allow_crossing_spans = allow_crossing_spans
        self._max_antecedents = max_antecedents
        self._max_training_sentences = max_training_sentences
        self._elmo_placement.check_input_of(context_layer, "context_layer")
        embedded_dim = text_field_embedder.get_output_dim()
        span_dim = 2 * context_layer.get_output_dim() + feature_size + embedded_dim
        check_dimensions_match(
            span_dim,
            mention_feedforward.get_input_dim(),
            "span dim (2 context_layer output dims, feature_size, text field embedding dim)",
            "mention_feedforward input dim",
        )
        num_features = 1 + use_speakers + bool(genres)
        check_dimensions_match(
            3 * span_dim + num_features * feature_size,
            antecedent_feedforward.get_input_dim(),
            f"pair dim (3 span dims, {num_features} feature_size)",
            "antecedent_feedforward input dim",
        )
        self._coarse2fine_scorer = torch.nn.Linear(span_dim, span_dim) if coarse_to_fine else None
        self._inference_order = inference_order
        self._span_updating_gated_sum = GatedSum(span_dim) if inference_order > 1 else None
        self._lexical_dropout = torch.nn.Dropout(lexical_dropout)
        self._context_dropout = torch.nn.Dropout(context_dropout)
        self._feature_dropout = torch.nn.Dropout(feature_dropout)
        self._mention_recall = MentionRecall()
        self._conll_coref_scores = ConllCorefScores()
        # Interpreters need the vectors of documents. With `encode_by_sentence` the embedder returns
        # those of sentences, so they hook this module instead.
        self._elmo_placement.is_interpretable_layer |= encode_by_sentence
        initializer(self)

    def forward(
        self,
        text: TextFieldTensors,
        spans: torch.Tensor,
        span_labels: Optional[torch.Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        Link the mentions of a batch of documents to their antecedents.

        # Parameters

        text : `TextFieldTensors`
            Tokens of each document.
        spans : `torch.Tensor`
            First and last token of each span, shape `(batch_size, num_spans, 2)`; -1 at padding.
        span_labels : `torch.Tensor`, optional (default = `None`)
            Cluster number of each candidate span, -1 for none, shape `(batch_size, num_spans)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            `original_text` of each document, and `clusters` if there are `span_labels`. Also
            `sentence_lengths`, `speakers` and `genre` if the model's arguments need them.

        # Returns

        `Dict[str, Any]`
            `top_spans`, the first and the last token of each kept span, shape `(batch_size,
            num_kept, 2)`; `antecedent_indices`, indices of each span's antecedents in `top_spans`,
            shape `(batch_size, num_kept, num_antecedents)`; `predicted_antecedents`, the column of
            the best antecedent in `antecedent_indices`, or -1 for none, shape `(batch_size,
            num_kept)`. With `span_labels` also the scalar `loss`, summed over spans; with
            `metadata` also `document`, the tokens of each document.

        # Raises

        `ConfigurationError`
            If a document's genre is not in `genres`.
        `ValueError`
            If `metadata` lacks a key that the model's arguments need.
        """
        if self.training and self._max_training_sentences is not None:
            text, spans, span_labels, metadata = random_window(
                Documents(text, spans, span_labels, metadata or []), self._max_training_sentences
            )
        embedded, context = self._encode(text, metadata)
        candidates = self._span_vectors(spans.clamp(min=0), context, embedded)
        candidate_scores = mention_scores(
            candidates, self._mention_feedforward, self._mention_scorer
        )
        kept, kept_mask = kept_spans(
            candidate_scores,
            spans[:, :, 0] >= 0,
            candidates.spans,
            util.get_text_field_mask(text),
            self._spans_per_word,
            self._allow_crossing_spans,
        )
        top, top_scores = candidates.select(kept), candidate_scores.gather(1, kept)
        embeddings = top.embeddings()

        if self._coarse2fine_scorer is None:
            antecedents = nearest_antecedents(top_scores, self._max_antecedents)
        else:
            projected = self._coarse2fine_scorer(embeddings)
            antecedents = coarse_antecedents(
                top_scores, kept_mask, embeddings, projected, self._max_antecedents
            )
        score = functools.partial(
            pair_scores,
            antecedents=antecedents,
            features=self._pair_features(antecedents, top.spans, metadata),
            feedforward=self._antecedent_feedforward,
            scorer=self._antecedent_scorer,
        )
        scores = score(embeddings)
        if self._span_updating_gated_sum is not None:
            for _ in range(self._inference_order - 1):
                expected = expected_antecedents(embeddings, antecedents, scores)
                embeddings = self._span_updating_gated_sum(embeddings, expected)
                scores = score(embeddings)
        # Spans that are padding must not be linked.
        predicted = (scores.argmax(dim=2) - 1).masked_fill(~kept_mask, -1)
        output: Dict[str, Any] = {
            "top_spans": top.spans,
            "antecedent_indices": antecedents.indices,
            "predicted_antecedents": predicted,
        }
        if span_labels is not None:
            labels = span_labels.gather(1, kept)
            output["loss"] = marginal_loss(scores, labels, kept_mask, antecedents)
            gold = [{"clusters": clusters} for clusters in from_metadata(metadata, "clusters")]
            self._mention_recall(top.spans.masked_fill(~kept_mask.unsqueeze(2), -1), gold)
            self._conll_coref_scores(top.spans, antecedents.indices, predicted, gold)
        if metadata is not None:
            output["document"] = [document["original_text"] for document in metadata]
        return output

    def _encode(
        self, text: TextFieldTensors, metadata: Optional[List[Dict[str, Any]]]
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return each document's embedded tokens (without `elmo`) and encoded tokens."""
        mask: torch.Tensor = util.get_text_field_mask(text)
        sentences = None
        if self._encode_by_sentence:
            lengths = from_metadata(metadata, "sentence_lengths")
            sentences = Sentences(lengths, mask.size(1), mask.device)
            text, mask = sentences.split(text), sentences.mask
        embedded, _ = self._elmo_placement.embed(text, self._text_field_embedder, self._elmo)
        if sentences is None:
            embedded = self._elmo_placement(embedded)
        else:
            # AllenNLP's interpreters hook this call, and expect one row per document.
            embedded = self._elmo_placement(sentences.join_vectors(embedded))
            embedded = sentences.split_vectors(embedded)
        embedded = self._lexical_dropout(embedded)
        context = self._context_dropout(self._context_layer(embedded, mask))
        embedded = embedded[..., : self._elmo_placement.text_dim]
        if sentences is None:
            return embedded, context
        return sentences.join_vectors(embedded), sentences.join_vectors(context)

    def _span_vectors(
        self, spans: torch.Tensor, context: torch.Tensor, embedded: torch.Tensor
    ) -> Union[SpanParts, SpanVectors]:
        """Embed the spans' widths, and compute the attention weights of their tokens."""
        endpoints, heads = self._endpoint_span_extractor, self._attentive_span_extractor
        widths = spans[..., 1] - spans[..., 0]
        widest = int(widths.max())
        if widest >= self._max_span_width:
            raise ConfigurationError(
                f"found a span of {widest + 1} tokens, expected at most {self._max_span_width}, "
                "the model's max_span_width; the reader's must be equal"
            )
        from_context = self._head_scores_from_context
        if not (is_plain(endpoints, EndpointSpanExtractor) and is_plain(heads, self._head_kind)):
            ends, width = endpoints(context, spans).tensor_split([2 * context.size(-1)], dim=-1)
            head = heads(embedded, spans, *[context] * from_context)
            return SpanVectors(spans, torch.cat([ends, self._feature_dropout(width), head], dim=-1))
        scores = heads._global_attention(context if from_context else embedded).squeeze(-1)
        steps = torch.arange(widest + 1, device=spans.device)
        index = (spans[..., :1] + steps).clamp(max=scores.size(1) - 1)
        # Shape: (batch_size, num_spans, widest + 1)
        scores = scores.gather(1, index.flatten(1)).view_as(index)
        attention = scores.masked_fill(steps > widths.unsqueeze(-1), -math.inf).softmax(dim=-1)
        width_embedding: Any = endpoints._span_width_embedding
        embedded_widths = self._feature_dropout(width_embedding(widths))
        return SpanParts(spans, context, embedded, embedded_widths, attention)

    def _pair_features(
        self,
        antecedents: Antecedents,
        spans: torch.Tensor,
        metadata: Optional[List[Dict[str, Any]]],
    ) -> torch.Tensor:
        """
        Embed up to three features of each pair: the bucketed difference of the spans' positions
        among the kept `spans`, whether their first tokens have one speaker, and the document's
        genre. Return those of the pairs where `antecedents.mask` is true, in row-major order.
        """
        mask = antecedents.mask
        position = torch.arange(mask.size(1), device=mask.device).unsqueeze(1)
        distance = util.bucket_values(
            (position - antecedents.indices)[mask], num_total_buckets=NUM_DISTANCE_BUCKETS
        )
        features = [self._distance_embedding(distance)]
        if self._speaker_embedding is not None:
            rows = []
            for names, starts in zip(from_metadata(metadata, "speakers"), spans[..., 0].tolist()):
                ids = {name: index for index, name in enumerate(dict.fromkeys(names))}
                rows.append([ids[names[start]] for start in starts])
            speakers = torch.tensor(rows, device=mask.device)
            same = speakers.unsqueeze(2) == antecedents.select(speakers)
            features.append(self._speaker_embedding(same[mask].long()))
        if self._genre_embedding is not None:
            genres = self._genre_ids(metadata).to(mask.device)
            vectors = self._genre_embedding(genres.clamp(min=0)) * (genres >= 0).unsqueeze(1)
            features.append(vectors[mask.nonzero()[:, 0]])
        return self._feature_dropout(torch.cat(features, dim=-1))

    def _genre_ids(self, metadata: Optional[List[Dict[str, Any]]]) -> torch.Tensor:
        """Return each document's genre as an index in `genres`; -1 for an empty genre."""
        ids, known = [], self._genres or []
        for index, genre in enumerate(from_metadata(metadata, "genre")):
            if genre and genre not in known:
                key = metadata[index].get("document_key") if metadata else None
                raise ConfigurationError(
                    f"found the genre {genre!r}{f' of document {key!r}' if key else ''}, expected "
                    f"one of the model's genres {known}, or an empty one: genre not known"
                )
            ids.append(known.index(genre) if genre else -1)
        return torch.tensor(ids)

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """
        Add `clusters`, a list of clusters for each document. A cluster is a list of mentions, and a
        mention is its `(first, last)` token.
        """
        output_dict["clusters"] = [
            antecedents_to_clusters(*document)
            for document in zip(
                output_dict["top_spans"].detach().cpu(),
                output_dict["antecedent_indices"].detach().cpu(),
                output_dict["predicted_antecedents"].detach().cpu(),
            )
        ]
        return output_dict

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `coref_precision`, `coref_recall` and `coref_f1` (see `ConllCorefScores`) and
        `mention_recall`, from 0 to 1. `reset` sets the counts to 0.
        """
        precision, recall, f1 = self._conll_coref_scores.get_metric(reset)
        return {
            "coref_precision": precision,
            "coref_recall": recall,
            "coref_f1": f1,
            "mention_recall": self._mention_recall.get_metric(reset),
        }
