"""Semantic role labelling as tagging with a deep alternating LSTM, with or without ELMo."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2SeqEncoder, TextFieldEmbedder, TimeDistributed
from allennlp.modules.token_embedders import Embedding
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import (
    get_lengths_from_binary_sequence_mask,
    get_text_field_mask,
    sequence_cross_entropy_with_logits,
    viterbi_decode,
)

from elmo_plugin.metrics.srl_eval import (
    DEFAULT_SRL_EVAL_PATH,
    SrlEvalScorer,
    convert_bio_tags_to_conll_format,
)
from elmo_plugin.metrics.unseen_labels import UnseenLabels
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement


@Model.register("srl", exist_ok=True)
class SemanticRoleLabeler(Model):
    """
    Tagger of He et al. 2017, "Deep Semantic Role Labeling: What Works and What's Next". A deep
    alternating LSTM reads the tokens' vectors, each concatenated with a feature that marks the
    predicate. Viterbi decoding finds well-formed BIO tags of the predicate's arguments.

    Registered as a `Model` with name "srl".

    # Parameters

    vocab : `Vocabulary`
        Holds the tags in its namespace `labels`.
    text_field_embedder : `TextFieldEmbedder`
        Embeds the token indexers' output. If `elmo` is given, the indexer `elmo` is left out.
    encoder : `Seq2SeqEncoder`
        Encodes the embedded tokens, concatenated with the embedded predicate feature.
    binary_feature_dim : `int`
        Width of the embedded predicate feature.
    embedding_dropout : `float`, optional (default = `0.0`)
        Dropout probability of the embedded tokens, including ELMo if it is used at the input.
    initializer : `InitializerApplicator`, optional (default = `InitializerApplicator()`)
    label_smoothing : `float`, optional (default = `None`)
        Share of the target probability that the loss spreads evenly over all tags.
    ignore_span_metric : `bool`, optional (default = `False`)
        If true, arguments are not scored.
    srl_eval_path : `str`, optional (default = `DEFAULT_SRL_EVAL_PATH`)
        In allennlp-models the path of `srl-eval.pl`. Here any path selects `SrlEvalScorer`, which
        gives the same scores without perl. With `None`, `get_metrics` raises an error unless
        `ignore_span_metric` is true.
    elmo : `Elmo`, optional (default = `None`)
        Reads the token indexer `elmo`. ELMo may be part of `text_field_embedder` instead.
    use_input_elmo, use_output_elmo : `bool`, optional (default = `False`)
        The first concatenates ELMo to the input of `encoder`, the second to its output.

    # Raises

    `ConfigurationError`
        If dimensions do not match, or `elmo` and the flags `use_*_elmo` contradict each other.
    """

    default_predictor = "semantic_role_labeling"

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        encoder: Seq2SeqEncoder,
        binary_feature_dim: int,
        embedding_dropout: float = 0.0,
        initializer: InitializerApplicator = InitializerApplicator(),  # noqa: B008
        label_smoothing: Optional[float] = None,
        ignore_span_metric: bool = False,
        srl_eval_path: Optional[str] = DEFAULT_SRL_EVAL_PATH,
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
        self.text_field_embedder = text_field_embedder
        self._elmo = elmo
        self.num_classes = self.vocab.get_vocab_size("labels")
        # The predicate is part of the input, so its span V is not scored.
        self.span_metric = (
            None if srl_eval_path is None else SrlEvalScorer(srl_eval_path, ignore_classes=["V"])
        )
        self.encoder = encoder
        self.binary_feature_embedding = Embedding(
            num_embeddings=2, embedding_dim=binary_feature_dim
        )
        encoded_dim = self._elmo_placement.output_dim(encoder)
        self.tag_projection_layer = TimeDistributed(torch.nn.Linear(encoded_dim, self.num_classes))
        self.embedding_dropout = torch.nn.Dropout(p=embedding_dropout)
        self._label_smoothing = label_smoothing
        self._unseen_labels = UnseenLabels(vocab)
        self.ignore_span_metric = ignore_span_metric
        check_dimensions_match(
            self._elmo_placement.input_dim + binary_feature_dim,
            encoder.get_input_dim(),
            "text field embedding dim (with ELMo, if at the input) + binary_feature_dim",
            "encoder input dim",
        )
        initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        verb_indicator: torch.Tensor,
        tags: Optional[torch.LongTensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, torch.Tensor]:
        """
        Score the tags of a batch of sentences with one predicate each.

        # Parameters

        tokens : `TextFieldTensors`
        verb_indicator : `torch.Tensor`
            1 at the predicate's tokens, else 0, shape `(batch_size, num_tokens)`.
        tags : `torch.Tensor`, optional (default = `None`)
            Tag ids, shape `(batch_size, num_tokens)`.
        metadata : `List[Dict[str, Any]]`, optional (default = `None`)
            `words` and `verb` of each sentence; for the metrics also `verb_index` and `gold_tags`.

        # Returns

        `Dict[str, torch.Tensor]`
            `logits` and `class_probabilities`, shape `(batch_size, num_tokens, num_classes)`, in
            the order of the vocabulary's namespace `labels`; `mask`, bool, shape `(batch_size,
            num_tokens)`. With `tags` also the scalar `loss`; with `metadata` also the lists `words`
            and `verb`.
        """
        mask = get_text_field_mask(tokens)
        embedded, output_elmo = self._elmo_placement.embed(
            tokens, self.text_field_embedder, self._elmo
        )
        embedded = self._elmo_placement(embedded)
        predicate = self.binary_feature_embedding(verb_indicator.long())
        # Shape: (batch_size, num_tokens, encoder input dim)
        inputs = torch.cat([self.embedding_dropout(embedded), predicate], dim=-1)
        encoded = self.encoder(inputs, mask)
        encoded = self._elmo_placement.concatenate(encoded, output_elmo)
        logits = self.tag_projection_layer(encoded)
        output: Dict[str, Any] = {
            "logits": logits,
            "class_probabilities": logits.softmax(dim=-1),
            "mask": mask,
        }
        if tags is not None:
            gold, seen = self._unseen_labels.find(tags, self.training, mask)
            output["loss"] = sequence_cross_entropy_with_logits(
                logits,
                gold.clamp(min=0),  # type: ignore[arg-type]
                mask & seen,  # type: ignore[arg-type]
                label_smoothing=self._label_smoothing,  # type: ignore[arg-type]
            )
            scored = not self.ignore_span_metric and not self.training
            has_gold = all("gold_tags" in sentence for sentence in metadata or [{}])
            if scored and self.span_metric is not None and metadata is not None and has_gold:
                self._score(output, metadata)
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
            output["verb"] = [sentence["verb"] for sentence in metadata]
        return output

    def _score(self, output: Dict[str, Any], metadata: List[Dict[str, Any]]) -> None:
        assert self.span_metric is not None
        predicted = self._decode(output["class_probabilities"], output["mask"])
        self.span_metric(
            [sentence["verb_index"] for sentence in metadata],
            [sentence["words"] for sentence in metadata],
            [convert_bio_tags_to_conll_format(tags) for tags in predicted],
            [convert_bio_tags_to_conll_format(sentence["gold_tags"]) for sentence in metadata],
        )

    def _decode(self, probabilities: torch.Tensor, mask: torch.BoolTensor) -> List[List[str]]:
        """
        Return each sentence's best well-formed tags. Viterbi decoding adds up probabilities instead
        of log probabilities, as in AllenNLP 0.9 and 2.10.1, which computed the published scores.
        """
        lengths = get_lengths_from_binary_sequence_mask(mask).tolist()
        transitions = self.get_viterbi_pairwise_potentials()
        starts = self.get_start_transitions()
        names = self.vocab.get_index_to_token_vocabulary("labels")
        decoded = []
        for sentence, length in zip(probabilities.detach().cpu(), lengths, strict=True):
            best, _ = viterbi_decode(
                sentence[:length], transitions, allowed_start_transitions=starts
            )
            decoded.append([names[index] for index in best])
        return decoded

    def make_output_human_readable(
        self, output_dict: Dict[str, torch.Tensor]
    ) -> Dict[str, torch.Tensor]:
        """Add `tags`, the best well-formed tags of each sentence."""
        probabilities, mask = output_dict["class_probabilities"], output_dict["mask"]
        if probabilities.dim() == 2:
            probabilities, mask = probabilities.unsqueeze(0), mask.view(1, -1)
        output_dict["tags"] = self._decode(probabilities, mask)  # type: ignore[assignment, arg-type]
        return output_dict

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `precision-overall`, `recall-overall` and `f1-measure-overall`, from 0 to 1, or an
        empty dictionary with `ignore_span_metric`. `reset` sets the counts to 0.

        # Raises

        `ConfigurationError`
            If `srl_eval_path` is `None` and `ignore_span_metric` is false.
        """
        if reset:
            self._unseen_labels.warn()
        if self.ignore_span_metric:
            return {}
        if self.span_metric is None:
            raise ConfigurationError(
                "found srl_eval_path: null and ignore_span_metric: false, expected "
                "ignore_span_metric: true where no score is wanted"
            )
        metrics = self.span_metric.get_metric(reset=reset)
        return {name: value for name, value in metrics.items() if name.endswith("-overall")}

    def get_viterbi_pairwise_potentials(self) -> torch.Tensor:
        """
        Return the transition scores for Viterbi decoding, shape `(num_classes, num_classes)`. The
        row is the previous tag and the column the next tag. The score is minus infinity for `I-X`
        after any tag but `B-X` or `I-X`, else 0.
        """
        names = self._tag_names()
        transitions = torch.zeros(len(names), len(names))
        for after, name in names.items():
            if name[0] == "I":
                for before, previous in names.items():
                    if previous not in (name, "B" + name[1:]):
                        transitions[before, after] = -torch.inf
        return transitions

    def get_start_transitions(self) -> torch.Tensor:
        """
        Return each tag's score as the first of a sentence, shape `(num_classes,)`: minus infinity
        for `I-X`, which cannot start a sentence, else 0.
        """
        names = self._tag_names()
        return torch.tensor([-torch.inf if names[i][0] == "I" else 0.0 for i in range(len(names))])

    def _tag_names(self) -> Dict[int, str]:
        """Return the model's tags by index, without tags later added to the vocabulary."""
        names = self.vocab.get_index_to_token_vocabulary("labels")
        return {index: names[index] for index in range(self.num_classes)}
