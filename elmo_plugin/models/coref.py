"""Coreference resolution end to end, with or without ELMo: the paper's coreference row."""

from typing import Any, Dict, List, Optional, Tuple

import torch
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

from elmo_plugin.modules.coref.antecedents import coarse_antecedents, nearest_antecedents
from elmo_plugin.modules.coref.checks import check_dimensions, check_genres, check_positive
from elmo_plugin.modules.coref.decoding import AntecedentDecoder
from elmo_plugin.modules.coref.pair_features import pair_features
from elmo_plugin.modules.coref.pairs import antecedent_scores
from elmo_plugin.modules.coref.pruning import kept_spans
from elmo_plugin.modules.coref.sentences import Documents, Sentences, from_metadata, random_window
from elmo_plugin.modules.coref.spans import mention_scores, span_parts
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement

NUM_DISTANCE_BUCKETS = 10


@Model.register("coref", exist_ok=True)
class CoreferenceResolver(AntecedentDecoder):
    """
    Scores spans as mentions, keeps the best, and links each to its best antecedent or to none
    (Lee et al. 2017; `coarse_to_fine` and `inference_order`: Lee et al. 2018). With the arguments
    of allennlp-models' model of this name it is that model, computed with less work. What follows
    `initializer` is what that model lacks of the paper's (e2e-coref at 53c4116); all of it is off
    by default.

    Registered as a `Model` with name "coref".

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the tokens, all but the key `elmo` if `elmo` is given.
    context_layer : `Seq2SeqEncoder`
        Between embedding and spans.
    mention_feedforward, antecedent_feedforward : `FeedForward`
        From a span's vector, and from a pair's, to what its score is linear in.
    feature_size : `int`
        Of the embedded width, and of each of a pair's features.
    max_span_width : `int`
        The most tokens of a candidate span, as in the reader.
    spans_per_word : `float`
        How many spans are kept for each token.
    max_antecedents : `int`
        How many antecedents a span may have.
    coarse_to_fine : `bool`, optional (default = `False`)
        Whether a bilinear score chooses them; else they are the nearest.
    inference_order : `int`, optional (default = `1`)
        How often pairs are scored; from the second time on, each span is first moved towards its
        antecedents.
    lexical_dropout : `float`, optional (default = `0.2`)
        Probability, on the embedded tokens, ELMo included.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)
    elmo : `Elmo`, optional (default = `None`)
        Its characters come under the key `elmo` of the text field.
    use_input_elmo : `bool`, optional (default = `False`)
        Whether ELMo is concatenated to the input of `context_layer`. It is no part of the heads.
    encode_by_sentence : `bool`, optional (default = `False`)
        Whether embedding, biLM and `context_layer` run on each sentence by itself; else a document
        is one sequence.
    use_speakers : `bool`, optional (default = `False`)
        Whether a feature of a pair says that both spans have the same speaker: that of their first
        token.
    genres : `List[str]`, optional (default = `None`)
        If given, a feature of a pair is the document's genre, one of these. A document without a
        genre, such as a text to predict, has zeros there; any other genre is an error.
    head_scores_from_context : `bool`, optional (default = `False`)
        Whether the scores of tokens in heads come from the outputs of `context_layer`; else from
        the embedded tokens, of which heads are sums in both cases.
    allow_crossing_spans : `bool`, optional (default = `True`)
        Whether kept spans may cross. Without them the number to keep is that of each document by
        itself, not of the batch's longest.
    max_training_sentences : `int`, optional (default = `None`)
        In training, a longer document is cut to so many sentences in a row, anew each time.
    context_dropout, feature_dropout : `float`, optional (default = `0.0`)
        Probability, on the outputs of `context_layer`; on the embedded width and a pair's features.

    # Raises

    `ConfigurationError`
        If arguments contradict each other or dimensions do not fit.
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
        check_positive(
            feature_size=feature_size,
            max_span_width=max_span_width,
            spans_per_word=spans_per_word,
            max_antecedents=max_antecedents,
            inference_order=inference_order,
            max_training_sentences=max_training_sentences,
        )
        check_genres(genres)
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
        # The next two hold parameters, under allennlp-models' names; `span_parts` computes.
        self._endpoint_span_extractor = EndpointSpanExtractor(
            context_layer.get_output_dim(),
            num_width_embeddings=max_span_width,
            span_width_embedding_dim=feature_size,
        )
        self._head_scores_from_context = head_scores_from_context
        self._attentive_span_extractor = SelfAttentiveSpanExtractor(
            (context_layer if head_scores_from_context else text_field_embedder).get_output_dim()
        )
        self._distance_embedding = Embedding(feature_size, NUM_DISTANCE_BUCKETS)
        self._speaker_embedding = Embedding(feature_size, 2) if use_speakers else None
        self._genres = genres
        self._genre_embedding = Embedding(feature_size, len(genres)) if genres else None

        self._encode_by_sentence = encode_by_sentence
        self._spans_per_word = spans_per_word
        self._allow_crossing_spans = allow_crossing_spans
        self._max_antecedents = max_antecedents
        self._max_training_sentences = max_training_sentences
        check_dimensions(
            self._elmo_placement.input_dim,
            text_field_embedder.get_output_dim(),
            context_layer,
            mention_feedforward,
            antecedent_feedforward,
            feature_size,
            num_features=1 + use_speakers + bool(genres),
        )

        span_dim = mention_feedforward.get_input_dim()
        self._coarse2fine_scorer = torch.nn.Linear(span_dim, span_dim) if coarse_to_fine else None
        self._inference_order = inference_order
        self._span_updating_gated_sum = GatedSum(span_dim) if inference_order > 1 else None
        self._lexical_dropout = torch.nn.Dropout(lexical_dropout)
        self._context_dropout = torch.nn.Dropout(context_dropout)
        self._feature_dropout = torch.nn.Dropout(feature_dropout)
        initializer(self)

    def forward(
        self,
        text: TextFieldTensors,
        spans: torch.Tensor,
        span_labels: Optional[torch.Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        # Parameters

        text : `TextFieldTensors`
            Documents.
        spans : `torch.Tensor`
            First and last token of the candidate spans, shape `(batch_size, num_spans, 2)`, padded
            with -1.
        span_labels : `torch.Tensor`, optional (default = `None`)
            The cluster of each, -1 for none, shape `(batch_size, num_spans)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            The `original_text` of each document; with `span_labels` its `clusters`; for the
            paper's switches `sentence_lengths`, `speakers` and `genre`.

        # Returns

        `Dict[str, Any]`
            `top_spans`, the kept spans, shape `(batch_size, num_kept, 2)`; `antecedent_indices`,
            which of them may be a span's antecedent, shape
            `(batch_size, num_kept, num_antecedents)`; `predicted_antecedents`, the best one's
            column there or -1, shape `(batch_size, num_kept)`; with `span_labels` the scalar
            `loss`, summed over spans; with metadata `document`, the tokens.

        # Raises

        `ConfigurationError`
            If a document's genre is none of `genres`.
        `ValueError`
            If the metadata lacks what a switch needs.
        """
        if self.training and self._max_training_sentences is not None:
            text, spans, span_labels, metadata = random_window(
                Documents(text, spans, span_labels, metadata or []), self._max_training_sentences
            )
        embedded, context = self._encode(text, metadata)
        candidates = span_parts(
            spans.clamp(min=0),
            context,
            embedded,
            context if self._head_scores_from_context else embedded,
            self._endpoint_span_extractor,
            self._attentive_span_extractor,
            self._feature_dropout,
        )
        candidate_scores = mention_scores(
            candidates, self._mention_feedforward._module, self._mention_scorer._module
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
        features = pair_features(
            antecedents,
            top.spans,
            metadata,
            self._distance_embedding,
            self._speaker_embedding,
            self._genre_embedding,
            self._genres,
        )
        scores = antecedent_scores(
            embeddings,
            antecedents,
            self._feature_dropout(features),
            self._antecedent_feedforward._module,
            self._antecedent_scorer._module,
            self._span_updating_gated_sum,
            self._inference_order,
        )
        labels = None if span_labels is None else span_labels.gather(1, kept)
        return self.decode(scores, antecedents, top.spans, kept_mask, labels, metadata)

    def _encode(
        self, text: TextFieldTensors, metadata: Optional[List[Dict[str, Any]]]
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """The embedded tokens without ELMo, and the context layer's outputs, by document."""
        mask: torch.Tensor = util.get_text_field_mask(text)
        sentences = None
        if self._encode_by_sentence:
            lengths = from_metadata(metadata, "sentence_lengths")
            sentences = Sentences(lengths, mask.size(1), mask.device)
            text, mask = sentences.split(text), sentences.mask
        embedded, _ = self._elmo_placement.embed(text, self._text_field_embedder, self._elmo)
        embedded = self._lexical_dropout(embedded)
        context = self._context_dropout(self._context_layer(embedded, mask))
        embedded = embedded[..., : self._text_field_embedder.get_output_dim()]
        if sentences is None:
            return embedded, context
        return sentences.join(embedded), sentences.join(context)
