"""`coref` beside allennlp-models': reader, model, metrics, with the same weights."""

import random

import pytest
import torch
from allennlp.data.token_indexers import SingleIdTokenIndexer

from elmo_plugin.data.readers.coref import ConllCorefReader
from elmo_plugin.metrics.conll_coref import ConllCorefScores
from elmo_plugin.metrics.mention_recall import MentionRecall
from elmo_plugin.models.coref import CoreferenceResolver
from tests.models.coref_cases import MAX_SPAN_WIDTH, build, config, document
from tests.models.tasks import tensors

peer = pytest.importorskip(
    "allennlp_models.coref",
    reason="allennlp-models is not installed; `make peers` installs it apart",
)
peer_scores = pytest.importorskip("allennlp_models.coref.metrics.conll_coref_scores")
peer_recall = pytest.importorskip("allennlp_models.coref.metrics.mention_recall")
pytestmark = pytest.mark.peers

MODELS = {
    "defaults": {},
    "coarse to fine": {"coarse_to_fine": True},
    "order 3": {"inference_order": 3},
    "coarse to fine, order 3": {"coarse_to_fine": True, "inference_order": 3},
    "no lexical dropout": {"lexical_dropout": 0.0},
    "all antecedents": {"spans_per_word": 1.5, "max_antecedents": 500},
}
each_model = pytest.mark.parametrize("arguments", MODELS.values(), ids=MODELS)


def instances(cls, seeds=(1, 2, 3)):
    reader = cls(MAX_SPAN_WIDTH)
    documents = [document(seed, num_sentences=5 + seed) for seed in seeds]
    return [reader.text_to_instance(one["sentences"], one["gold_clusters"]) for one in documents]


def both(arguments):
    ours = build(config(**arguments), instances(ConllCorefReader), CoreferenceResolver)
    theirs = build(config(**arguments), instances(peer.ConllCorefReader), peer.CoreferenceResolver)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def step(model, cls):
    """Outputs, metrics and gradients."""
    output = model(**tensors(model, instances(cls)))
    output["loss"].backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    output = model.make_output_human_readable(output)
    return output, model.get_metrics(reset=True), gradients


@each_model
def test_outputs_metrics_and_gradients_are_theirs(arguments):
    ours, theirs = both(arguments)
    output, metrics, gradients = step(ours, ConllCorefReader)
    expected, their_metrics, their_gradients = step(theirs, peer.ConllCorefReader)
    assert output["loss"].item() == pytest.approx(expected["loss"].item(), abs=1e-9)
    assert expected["loss"] > 1
    for key in ("top_spans", "antecedent_indices", "predicted_antecedents"):
        assert torch.equal(output[key], expected[key]), key
    assert output["clusters"] == expected["clusters"]
    assert any(expected["clusters"])
    assert output["document"] == expected["document"]
    assert metrics == pytest.approx(their_metrics, abs=1e-12)
    assert gradients.keys() == their_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, their_gradients[name], atol=1e-9, rtol=1e-7)


@each_model
def test_weights_move_both_ways(arguments):
    ours, theirs = both(arguments)
    theirs.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_a_changed_weight_is_seen():
    ours, theirs = both({})
    weight = ours._antecedent_feedforward._module._linear_layers[0].weight
    weight.data[:, [0, -1]] = weight.data[:, [-1, 0]]
    found = step(ours, ConllCorefReader)[0]["loss"].item()
    assert found != pytest.approx(step(theirs, peer.ConllCorefReader)[0]["loss"].item(), abs=1e-5)


def links(seed, num_spans=30):
    """Random spans, antecedents and gold clusters of two mentions or more."""
    draw = random.Random(seed)
    spans = sorted(draw.sample([(a, a + b) for a in range(20) for b in range(4)], num_spans))
    top_spans = torch.tensor([spans])
    indices = torch.tensor([[[max(0, i - 1 - j) for j in range(10)] for i in range(num_spans)]])
    chosen = [
        draw.randrange(-1, min(i, 10)) if draw.random() < 0.6 else -1 for i in range(num_spans)
    ]
    mentions = [*draw.sample(spans, 20), (50, 51), (52, 52)]
    draw.shuffle(mentions)
    clusters = []
    while len(mentions) > 1:
        size = min(len(mentions), draw.randint(2, 6))
        clusters.append([mentions.pop() for _ in range(size)])
    return top_spans, indices, torch.tensor([chosen]), [{"clusters": clusters}]


@pytest.mark.parametrize("singletons", [False, True])
def test_metrics_are_theirs(singletons):
    ours, theirs = ConllCorefScores(), peer_scores.ConllCorefScores()
    recall, their_recall = MentionRecall(), peer_recall.MentionRecall()
    for seed in range(50):
        top_spans, indices, chosen, metadata = links(seed)
        if singletons:
            metadata[0]["clusters"] += [[(60, 61)], [tuple(top_spans[0, 0].tolist())]]
        for metric in (ours, theirs):
            metric(top_spans, indices, chosen, metadata)
        for metric in (recall, their_recall):
            metric(top_spans, metadata)
        assert ours.get_metric() == pytest.approx(theirs.get_metric(), abs=1e-12)
    assert min(ours.get_metric()) > 0.01
    assert recall.get_metric(reset=True) == their_recall.get_metric(reset=True) > 0
    ours.reset(), theirs.reset()
    assert ours.get_metric() == theirs.get_metric() == (0, 0, 0)


def fields(instance):
    """What allennlp-models' reader makes too; clusters as sets, their order being that of a set."""
    spans = [(span.span_start, span.span_end) for span in instance["spans"]]
    labels = instance["span_labels"].labels
    by_label = {}
    for span, label in zip(spans, labels):
        by_label.setdefault(label, set()).add(span)
    return (
        [token.text for token in instance["text"]],
        spans,
        {frozenset(found) for label, found in by_label.items()},
        {frozenset(cluster) for cluster in instance["metadata"]["clusters"]},
        instance["metadata"]["original_text"],
    )


@pytest.mark.parametrize(
    "arguments", [{}, {"max_sentences": 3}, {"remove_singleton_clusters": True}]
)
def test_the_reader_is_theirs(arguments, repository):
    path = repository / "examples/coref/train.gold_conll"
    ours = ConllCorefReader(6, **arguments)
    theirs = peer.ConllCorefReader(6, **arguments)
    found, expected = list(ours.read(str(path))), list(theirs.read(str(path)))
    assert len(found) == len(expected) > 5
    for one, other in zip(found, expected, strict=True):
        assert fields(one) == fields(other)


def test_the_reader_is_theirs_on_word_pieces_and_clusters_that_share_a_mention():
    from allennlp.data.tokenizers import Token

    class Pieces:
        """Two letters a piece."""

        single_sequence_start_tokens = [Token("[CLS]")]
        single_sequence_end_tokens = [Token("[SEP]")]

        def intra_word_tokenize(self, words):
            tokens, offsets = [*self.single_sequence_start_tokens], []
            for word in words:
                pieces = [word[i : i + 2] for i in range(0, len(word), 2)]
                offsets.append((len(tokens), len(tokens) + len(pieces) - 1))
                tokens += map(Token, pieces)
            return tokens + self.single_sequence_end_tokens, offsets

    one = document(5)
    clusters = [*one["gold_clusters"], [one["gold_clusters"][0][0], (0, 0)]]
    found, expected = (
        cls(
            5, {"tokens": SingleIdTokenIndexer()}, wordpiece_modeling_tokenizer=Pieces()
        ).text_to_instance(one["sentences"], [list(cluster) for cluster in clusters])
        for cls in (ConllCorefReader, peer.ConllCorefReader)
    )
    assert fields(found) == fields(expected)
