"""Reading comprehension by bidirectional and self-attention, with or without ELMo."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import InputVariationalDropout, Seq2SeqEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import get_text_field_mask, min_value_of_dtype
from allennlp.training.metrics import BooleanAccuracy, CategoricalAccuracy

from elmo_plugin.metrics.squad import SquadEmAndF1
from elmo_plugin.modules.answer_span import Span, best_span, boundary_loss, draw_one
from elmo_plugin.modules.bi_attention import BiAttention
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement
from elmo_plugin.modules.residual_self_attention import ResidualSelfAttention

SPAN_LOSSES = ("all_answers", "one_answer")
# Maps each output that is copied from the metadata to its key there.
PASSED_ON = {
    "id": "id",
    "question": "original_question",
    "passage": "original_passage",
    "question_tokens": "question_tokens",
    "passage_tokens": "passage_tokens",
    "token_offsets": "token_offsets",
}


@Model.register("bidaf_self_attention", exist_ok=True)
class BidafSelfAttention(Model):
    """
    SQuAD model of Clark and Gardner 2018, "Simple and effective multi-paragraph reading
    comprehension", for one paragraph, as in Peters et al. 2018 (table 1). One encoder encodes
    passage and question. The passage attends to the question and then to itself. Two more encoders
    score each token as the answer's start and end. The operations follow the code of Clark and
    Gardner (docqa/elmo/lm_qa_models.py, lines 291 to 325, of allenai/document-qa at 2f9fa68).

    Registered as a `Model` with name "bidaf_self_attention".

    # Parameters

    vocab : `Vocabulary`
    text_field_embedder : `TextFieldEmbedder`
        Embeds the token indexers' output. If `elmo` is given, the indexer `elmo` is left out.
    phrase_layer : `Seq2SeqEncoder`
        Encodes passage and question, with the same weights.
    residual_encoder : `Seq2SeqEncoder`
        Encodes the passage for self-attention. Its input and output have the same width.
    span_start_encoder : `Seq2SeqEncoder`
        Encodes the passage to score the answer's start.
    span_end_encoder : `Seq2SeqEncoder`
        Encodes the passage, concatenated with the output of `span_start_encoder`, to score the end.
    dropout : `float`, optional (default = `0.2`)
        Probability of variational dropout, before and after `phrase_layer` and `residual_encoder`
        and after self-attention.
    max_span_length : `int`, optional (default = `17`)
        Largest number of tokens in a predicted answer.
    span_loss : `str`, optional (default = `"all_answers"`)
        `"all_answers"` maximizes the total probability of all annotated starts, and that of all
        annotated ends. `"one_answer"` uses a single answer: a random one in training, drawn anew
        for each batch, and the most frequent one in evaluation. If each question has one answer, as
        in SQuAD's training set, both losses are the same.
    elmo : `Elmo`, optional (default = `None`)
        Reads the token indexer `elmo`. ELMo may be part of `text_field_embedder` instead.
    use_input_elmo, use_output_elmo : `bool`, optional (default = `False`)
        The first concatenates ELMo to the input of `phrase_layer`, the second to its output.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)

    # Raises

    `ConfigurationError`
        If dimensions do not match, `span_loss` is unknown, `max_span_length` is below 1, or `elmo`
        and the flags `use_*_elmo` contradict each other.
    """

    default_predictor = "reading_comprehension"

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        phrase_layer: Seq2SeqEncoder,
        residual_encoder: Seq2SeqEncoder,
        span_start_encoder: Seq2SeqEncoder,
        span_end_encoder: Seq2SeqEncoder,
        dropout: float = 0.2,
        max_span_length: int = 17,
        span_loss: str = "all_answers",
        elmo: Optional[Elmo] = None,
        use_input_elmo: bool = False,
        use_output_elmo: bool = False,
        initializer: InitializerApplicator = InitializerApplicator(),  # noqa: B008
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self._elmo_placement = ElmoPlacement(
            elmo,
            text_field_embedder,
            use_input_elmo=use_input_elmo,
            use_output_elmo=use_output_elmo,
        )
        if span_loss not in SPAN_LOSSES:
            raise ConfigurationError(f"span_loss is {span_loss!r}, expected one of {SPAN_LOSSES}")
        if max_span_length < 1:
            raise ConfigurationError(f"max_span_length is {max_span_length}, expected 1 or more")
        self._text_field_embedder = text_field_embedder
        self._elmo = elmo
        self._max_span_length = max_span_length
        self._span_loss = span_loss
        dim = residual_encoder.get_input_dim()
        self._phrase_layer = phrase_layer
        self._attention = BiAttention(self._elmo_placement.output_dim(phrase_layer))
        self._merge_attention = torch.nn.Linear(self._attention.get_output_dim(), dim)
        self._self_attention = ResidualSelfAttention(residual_encoder, dropout)
        self._span_start_encoder = span_start_encoder
        self._span_end_encoder = span_end_encoder
        self._span_start_predictor = torch.nn.Linear(span_start_encoder.get_output_dim(), 1)
        self._span_end_predictor = torch.nn.Linear(span_end_encoder.get_output_dim(), 1)
        self._dropout = InputVariationalDropout(dropout)
        self._start_accuracy = CategoricalAccuracy()
        self._end_accuracy = CategoricalAccuracy()
        self._span_accuracy = BooleanAccuracy()
        self._em_and_f1 = SquadEmAndF1()
        self._check_dimensions(dim)
        initializer(self)

    def _check_dimensions(self, dim: int) -> None:
        self._elmo_placement.check_input_of(self._phrase_layer, "phrase_layer")
        check_dimensions_match(
            dim,
            self._span_start_encoder.get_input_dim(),
            "residual_encoder dim",
            "span_start_encoder input dim",
        )
        check_dimensions_match(
            dim + self._span_start_encoder.get_output_dim(),
            self._span_end_encoder.get_input_dim(),
            "residual_encoder dim + span_start_encoder output dim",
            "span_end_encoder input dim",
        )

    def forward(
        self,
        question: TextFieldTensors,
        passage: TextFieldTensors,
        span_start: Optional[torch.Tensor] = None,
        span_end: Optional[torch.Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        Find the answers to a batch of questions in their passages.

        # Parameters

        question, passage : `TextFieldTensors`
        span_start, span_end : `torch.Tensor`, optional (default = `None`)
            First and last token of the answer, shape `(batch_size, 1)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            Metadata of `SquadReader`. The answer's text needs `original_passage` and
            `token_offsets`, and the metrics `em` and `f1` need `answer_texts`. The loss uses
            `token_spans`, or `span_start` and `span_end` if there are none.

        # Returns

        `Dict[str, Any]`
            `span_start_logits`, `span_start_probs`, `span_end_logits` and `span_end_probs`, shape
            `(batch_size, passage_tokens)`; `best_span`, the first and the last token of the answer,
            shape `(batch_size, 2)`. With `span_start` and `span_end` also the scalar `loss`. With
            `metadata` also `best_span_str`, the answer's text, and from the metadata `id`,
            `question`, `passage`, `question_tokens`, `passage_tokens` and `token_offsets`.
        """
        passage_mask = get_text_field_mask(passage)
        question_mask = get_text_field_mask(question)
        merged = self._merge_attention(
            self._attention(
                self._encode(passage, passage_mask),
                passage_mask,
                self._encode(question, question_mask),
                question_mask,
            )
        )
        attended = self._dropout(self._self_attention(torch.relu(merged), passage_mask))
        # Shape: (batch_size, passage_tokens, span_start_dim)
        start = self._span_start_encoder(attended, passage_mask)
        end = self._span_end_encoder(torch.cat([attended, start], dim=-1), passage_mask)

        # Mask padding with the smallest value of the logits' own dtype: under autocast, the
        # encoders' outputs have another dtype.
        start_logits, end_logits = (
            logits.masked_fill(~passage_mask, min_value_of_dtype(logits.dtype))
            for logits in (
                self._span_start_predictor(start).squeeze(-1),
                self._span_end_predictor(end).squeeze(-1),
            )
        )
        span = best_span(start_logits, end_logits, self._max_span_length)
        output: Dict[str, Any] = {
            "span_start_logits": start_logits,
            "span_start_probs": start_logits.softmax(dim=-1),
            "span_end_logits": end_logits,
            "span_end_probs": end_logits.softmax(dim=-1),
            "best_span": span,
        }
        if span_start is not None and span_end is not None:
            gold = torch.cat([span_start, span_end], dim=1)
            self._start_accuracy(start_logits, gold[:, 0])
            self._end_accuracy(end_logits, gold[:, 1])
            self._span_accuracy(span, gold)
            output["loss"] = self._loss(start_logits, end_logits, gold, metadata)
        if metadata is not None:
            output.update(self._texts(span, metadata))
        return output

    def _encode(self, tokens: TextFieldTensors, mask: torch.BoolTensor) -> torch.Tensor:
        embedded, output_elmo = self._elmo_placement.embed(
            tokens, self._text_field_embedder, self._elmo
        )
        embedded = self._elmo_placement(embedded)
        encoded = self._dropout(self._phrase_layer(self._dropout(embedded), mask))
        return self._elmo_placement.concatenate(encoded, output_elmo)

    def _loss(
        self,
        start_logits: torch.Tensor,
        end_logits: torch.Tensor,
        gold: torch.Tensor,
        metadata: Optional[List[Dict[str, Any]]],
    ) -> torch.Tensor:
        answers: List[List[Span]] = [[(start, end)] for start, end in gold.tolist()]
        if metadata is not None and (self._span_loss == "all_answers" or self.training):
            answers = [
                one.get("token_spans") or [span]
                for one, (span,) in zip(metadata, answers, strict=True)
            ]
            if self._span_loss == "one_answer":
                answers = draw_one(answers)
        return boundary_loss(
            start_logits, [[start for start, _ in spans] for spans in answers]
        ) + boundary_loss(end_logits, [[end for _, end in spans] for spans in answers])

    def _texts(self, span: torch.Tensor, metadata: List[Dict[str, Any]]) -> Dict[str, Any]:
        texts, scored, answers = [], [], []
        for (first, last), one in zip(span.tolist(), metadata, strict=True):
            offsets = one["token_offsets"]
            text = one["original_passage"][offsets[first][0] : offsets[last][1]]
            # The no-answer token covers no text of the passage, so use the token itself.
            texts.append(text or one["passage_tokens"][last])
            if one.get("answer_texts"):
                scored.append(texts[-1])
                answers.append(one["answer_texts"])
        self._em_and_f1(scored, answers)
        output: Dict[str, Any] = {"best_span_str": texts}
        for name, key in PASSED_ON.items():
            if all(key in one for one in metadata):
                output[name] = [one[key] for one in metadata]
        return output

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return five metrics, from 0 to 1. `start_acc`, `end_acc` and `span_acc` are accuracies for
        the most frequent answer. `em` (exact match) and `f1` compare with all answers, as SQuAD's
        script does. `reset` sets the counts to 0.
        """
        exact_match, f1 = self._em_and_f1.get_metric(reset)
        return {
            "start_acc": self._start_accuracy.get_metric(reset),
            "end_acc": self._end_accuracy.get_metric(reset),
            "span_acc": self._span_accuracy.get_metric(reset),
            "em": exact_match,
            "f1": f1,
        }
