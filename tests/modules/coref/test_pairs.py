import torch
from allennlp.modules import FeedForward, TimeDistributed
from allennlp.nn import Activation

from elmo_plugin.modules.coref import pairs
from elmo_plugin.modules.coref.pairs import Antecedents, nearest_antecedents


def test_the_product_and_its_gradient():
    torch.manual_seed(1)
    vectors = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    # A vector may stand on both sides, and often.
    left, right = torch.tensor([1, 2, 2, 4, 3, 4]), torch.tensor([0, 0, 1, 4, 2, 2])
    found = pairs._PairProduct.apply(vectors, left, right, weight)
    torch.testing.assert_close(found, (vectors[left] * vectors[right]) @ weight.t())
    assert torch.autograd.gradcheck(
        lambda v, w: pairs._PairProduct.apply(v, left, right, w), (vectors, weight)
    )


def scores(monkeypatch, pairs_at_once):
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", pairs_at_once)
    torch.manual_seed(1)
    embeddings = torch.randn(2, 8, 3, dtype=torch.float64, requires_grad=True)
    antecedents = nearest_antecedents(torch.randn(2, 8, dtype=torch.float64), 5)
    features = torch.randn(int(antecedents.mask.sum()), 2, dtype=torch.float64)
    relu = Activation.by_name("relu")()
    feedforward = TimeDistributed(FeedForward(11, 2, 6, relu).double())
    scorer = TimeDistributed(torch.nn.Linear(6, 1).double())
    found = pairs.pair_scores(embeddings, antecedents, features, feedforward, scorer)
    found[found > -1e9].sum().backward()
    parameters = [*feedforward.parameters(), *scorer.parameters(), embeddings]
    concatenated = concatenated_scores(embeddings, antecedents, features, feedforward, scorer)
    return found, [parameter.grad for parameter in parameters], concatenated


def concatenated_scores(embeddings, antecedents, features, feedforward, scorer):
    """One pair after the other, its vector whole."""
    found = {}
    for row, (document, span, column) in enumerate(antecedents.mask.nonzero().tolist()):
        g_i = embeddings[document, span]
        g_j = embeddings[document, antecedents.indices[document, span, column]]
        pair = torch.cat([g_i, g_j, g_i * g_j, features[row]])
        both = antecedents.scores[document, span, column]
        found[document, span, column + 1] = both + scorer._module(feedforward._module(pair))[0]
    return found


def test_the_split_layer_is_the_whole_one_in_chunks_of_any_size(monkeypatch):
    whole, gradients, concatenated = scores(monkeypatch, 1000)
    assert not whole[..., 0].any()
    assert len(concatenated) == (whole[..., 1:] > -1e9).sum() == 2 * (0 + 1 + 2 + 3 + 4 + 5 * 3)
    for index, score in concatenated.items():
        torch.testing.assert_close(whole[index], score)
    chunked, chunked_gradients, _ = scores(monkeypatch, 7)
    torch.testing.assert_close(chunked, whole)
    for found, expected in zip(chunked_gradients, gradients, strict=True):
        torch.testing.assert_close(found, expected)


def test_under_autocast_the_scores_are_nearly_the_same():
    torch.manual_seed(1)
    embeddings = torch.randn(2, 8, 3)
    features = torch.randn(2 * (1 + 2 + 3 + 4 + 5 * 3), 2)
    feedforward = TimeDistributed(FeedForward(11, 2, 6, Activation.by_name("relu")()))
    scorer = TimeDistributed(torch.nn.Linear(6, 1))

    def score(dtype, vectors):
        antecedents = nearest_antecedents(torch.ones(2, 8, dtype=dtype), 5)
        return pairs.pair_scores(vectors, antecedents, features.to(dtype), feedforward, scorer)

    expected = score(torch.float32, embeddings)
    half = embeddings.half().requires_grad_()
    with torch.autocast("cpu", torch.float16):
        found = score(torch.float16, half)
    assert (found > -1e4).equal(expected > -1e9)
    torch.testing.assert_close(
        found[found > -1e4].float(), expected[expected > -1e9], atol=0.02, rtol=0
    )
    found[found > -1e4].sum().backward()
    assert half.grad.any()
    assert feedforward._module._linear_layers[0].weight.grad.isfinite().all()


def test_the_loss_by_hand():
    # Three spans, the second and the third in one cluster; the third may be linked to both.
    mask = torch.tensor([[[False, False], [True, False], [True, True]]])
    indices = torch.tensor([[[0, 0], [0, 0], [1, 0]]])
    antecedents = Antecedents(indices, mask, torch.zeros(1, 3, 2))
    least = torch.finfo(torch.float32).min
    table = torch.tensor([[[0.0, least, least], [0.0, 1.0, least], [0.0, 2.0, 3.0]]])
    labels, kept = torch.tensor([[-1, 0, 0]]), torch.ones(1, 3, dtype=torch.bool)
    of_second = torch.tensor([0.0, 1.0]).logsumexp(0)
    of_third = torch.tensor([0.0, 2.0, 3.0]).logsumexp(0) - 2.0
    found = pairs.marginal_loss(table, labels, kept, antecedents)
    torch.testing.assert_close(found, of_second + of_third)
    kept[0, 2] = False
    found = pairs.marginal_loss(table, labels, kept, antecedents)
    torch.testing.assert_close(found, of_second)


def test_a_second_derivative_of_pair_products_is_the_definitions():
    torch.manual_seed(0)
    vectors = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    left, right = torch.tensor([1, 2, 3, 3]), torch.tensor([0, 0, 1, 2])

    def penalty(products):
        grads = torch.autograd.grad(products.sum(), [vectors, weight], create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in grads), [vectors, weight])

    found = penalty(pairs._PairProduct.apply(vectors, left, right, weight))
    expected = penalty((vectors[left] * vectors[right]) @ weight.t())
    torch.testing.assert_close(found, expected)
    assert all(one.abs().sum() > 0 for one in found)
