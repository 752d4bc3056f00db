import re

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules.span_extractors import EndpointSpanExtractor, SelfAttentiveSpanExtractor
from torch.utils.flop_counter import FlopCounterMode

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.cases import each_reweighting
from tests.models import numpy_coref
from tests.models.coref_cases import (
    CONTEXT_DIM,
    MAX_SPAN_WIDTH,
    build,
    config,
    document,
    reader,
)
from tests.models.tasks import EMBEDDING_DIM, WORD_DIM, tensors

GENRES = ["talk", "news"]
LSTM = {"type": "coupled_lstm", "input_size": WORD_DIM, "hidden_size": CONTEXT_DIM // 2}
PAPER = {
    "num_features": 3,
    "context_layer": LSTM,
    "encode_by_sentence": True,
    "use_speakers": True,
    "genres": GENRES,
    "head_scores_from_context": True,
    "allow_crossing_spans": False,
    "max_antecedents": 9,
}


def instance(seed=1, genre="news", reader_arguments=None, **arguments):
    return reader(**(reader_arguments or {})).text_to_instance(
        **document(seed, num_sentences=12, **arguments), genre=genre
    )


def run(model, *instances):
    output = model(**tensors(model, list(instances)))
    return model.make_output_human_readable(output)


def build_paper(*instances, **arguments):
    return build(config(**{**PAPER, **arguments}), list(instances))


def weights_of(model):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def without_dropout_of_scorers(model):
    for feedforward in (model._mention_feedforward, model._antecedent_feedforward):
        for dropout in feedforward._module._dropout:
            dropout.p = 0.0
    return model


def by_sentence(instance, rows):
    ends = np.cumsum(instance["metadata"]["sentence_lengths"])
    return np.split(rows, ends[:-1])


def reference(model, one, elmo=None):
    """`numpy_coref` with the model's weights."""
    weights = weights_of(model)
    embedding = weights["_text_field_embedder.token_embedder_tokens.weight"]
    ids = [model.vocab.get_token_index(token.text) for token in one["text"]]
    metadata = one["metadata"]
    return numpy_coref.run(
        weights,
        by_sentence(one, embedding[ids]),
        elmo,
        metadata["speakers"],
        metadata["genre"],
        metadata["clusters"],
        {
            "max_span_width": MAX_SPAN_WIDTH,
            "spans_per_word": 0.4,
            "max_antecedents": 9,
            "genres": GENRES,
        },
    )


def assert_equals_the_reference(model, one, elmo=None):
    output = run(model, one)
    kept, scores, loss = reference(model, one, elmo)
    assert [tuple(span) for span in output["top_spans"][0].tolist()] == kept
    predicted = [int(np.argmax(row)) - 1 for row in scores]
    assert output["predicted_antecedents"][0].tolist() == predicted
    assert max(predicted) > 1
    assert output["loss"].item() == pytest.approx(loss, abs=1e-9)
    return output


def test_the_papers_model_is_lee_et_al_s():
    one = instance()
    assert_equals_the_reference(build_paper(one), one)


def test_the_papers_model_in_float32():
    one = instance()
    model = build_paper(one)
    loss = reference(model, one)[2]
    assert run(model.float(), one)["loss"].item() == pytest.approx(loss, rel=1e-5)


ELMO_INDEXERS = {"tokens": {"type": "single_id"}, "elmo": {"type": "elmo_characters"}}


def test_elmo_by_sentence_at_the_lstms_input_only(bilm):
    one = instance(reader_arguments={"token_indexers": ELMO_INDEXERS})
    model = build_paper(
        one,
        context_layer={**LSTM, "input_size": WORD_DIM + EMBEDDING_DIM},
        use_input_elmo=True,
        elmo={**bilm, "state": "reset", "dropout": 0.0},
    )
    model._elmo.double()
    with torch.no_grad():  # of each sentence by itself
        elmo = [
            model._elmo(batch_to_ids([list(words)]))["elmo_representations"][0][0].numpy()
            for words in by_sentence(one, np.array(one["metadata"]["original_text"]))
        ]
    assert_equals_the_reference(model, one, elmo)
    assert model._mention_feedforward._module.get_input_dim() == 2 * CONTEXT_DIM + 3 + WORD_DIM


@pytest.mark.parametrize(
    ("name", "probability"),
    [("lexical_dropout", 0.5), ("context_dropout", 0.2), ("feature_dropout", 0.2)],
)
def test_dropouts_are_where_they_should(name, probability):
    one = instance()
    off = {"lexical_dropout": 0.0, "context_dropout": 0.0, "feature_dropout": 0.0}
    model = build_paper(one, **{**off, name: probability})
    quiet = build_paper(one, **off)
    for each in (model, quiet):
        without_dropout_of_scorers(each).train()
    batch = tensors(model, [one])
    expected = quiet(**batch)["loss"].item()
    assert quiet(**batch)["loss"].item() == expected
    assert model(**batch)["loss"].item() != pytest.approx(expected)
    assert model.eval()(**batch)["loss"].item() == pytest.approx(expected)


def test_an_unseen_genre_is_an_error_and_no_genre_is_zeros():
    one = instance(genre="poem")
    model = build_paper(one)
    with pytest.raises(ConfigurationError, match=r"found the genre 'poem', expected one of .*news"):
        run(model, one)
    unknown, named = instance(genre=""), instance(genre="talk")
    loss = run(model, unknown)["loss"].item()
    assert loss != pytest.approx(run(model, named)["loss"].item())
    model._genre_embedding.weight.data.zero_()
    assert run(model, named)["loss"].item() == pytest.approx(loss)


def test_other_documents_of_a_batch_change_nothing():
    documents = [instance(seed, genre) for seed, genre in ((1, "news"), (2, "talk"), (3, ""))]
    short = reader().text_to_instance(
        [["Anna", "saw", "it"], ["She", "ran"]], [[(0, 0), (3, 3)]], genre="talk"
    )
    documents.insert(1, short)
    model = build_paper(*documents)
    alone = [run(model, one) for one in documents]
    together = run(model, *documents)
    assert together["clusters"] == [output["clusters"][0] for output in alone]
    assert any(together["clusters"])
    loss = sum(output["loss"].item() for output in alone)
    assert together["loss"].item() == pytest.approx(loss, abs=1e-9)


def test_mention_recall_does_not_count_padding():
    """Rows beyond the kept spans hold candidate 0, a gold mention that was not kept."""
    short = reader().text_to_instance([["Anna", "saw", "it"]], [[(0, 0), (1, 1)]])
    model = build_paper(instance(1, ""), short)
    for one in (instance(1, ""), short):
        run(model, one)
    expected = model.get_metrics(reset=True)["mention_recall"]
    run(model, instance(1, ""), short)
    assert model.get_metrics()["mention_recall"] == pytest.approx(expected)


def test_the_training_window_is_a_document_of_its_own():
    one = instance()
    model = build_paper(one, max_training_sentences=4, lexical_dropout=0.0)
    without_dropout_of_scorers(model)
    metadata = one["metadata"].metadata
    lengths = metadata["sentence_lengths"]
    words, speakers = (
        [part.tolist() for part in by_sentence(one, np.array(metadata[key]))]
        for key in ("original_text", "speakers")
    )
    seen = set()
    for seed in range(40):
        torch.manual_seed(seed)
        model.train()
        output = model(**tensors(model, [one]))
        torch.manual_seed(seed)
        first = int(torch.randint(len(lengths) - 4 + 1, ()))
        window = slice(first, first + 4)
        begin, end = sum(lengths[:first]), sum(lengths[: first + 4])
        assert output["document"] == [metadata["original_text"][begin:end]]
        seen.add(first)
        clusters = [
            [(a - begin, b - begin) for a, b in cluster if a >= begin and b < end]
            for cluster in metadata["clusters"]
        ]
        alone = reader().text_to_instance(words[window], clusters, speakers[window], "news")
        model.eval()
        expected = model(**tensors(model, [alone]))
        assert torch.equal(output["top_spans"], expected["top_spans"])
        assert output["loss"].item() == pytest.approx(expected["loss"].item(), abs=1e-9)
    assert seen == set(range(9))  # every place a window can begin


def test_windows_of_a_batch():
    documents = [instance(1), reader().text_to_instance(**document(2, 3)), instance(3)]
    model = build_paper(*documents, genres=None, num_features=2, max_training_sentences=4)
    model.train()
    output = model(**tensors(model, documents))
    assert [len(words) for words in output["document"]][1] == len(documents[1]["text"])
    output["loss"].backward()
    # Without training nothing is cut.
    output = run(model.eval(), *documents)
    assert [len(words) for words in output["document"]] == [len(d["text"]) for d in documents]


@pytest.mark.parametrize("paper", [False, True])
def test_gradients(paper):
    """Every parameter's, along a random direction, by differences."""
    one = instance()
    model = build_paper(one) if paper else build(config(inference_order=2), [one])
    batch = tensors(model, [one])
    model(**batch)["loss"].backward()
    for name, parameter in model.named_parameters():
        direction = torch.randn_like(parameter)
        found = (parameter.grad * direction).sum().item()
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(direction, alpha=sign * 1e-6)
                losses.append(model(**batch)["loss"].item())
                parameter.sub_(direction, alpha=sign * 1e-6)
        assert found == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-3, abs=1e-4), name


def test_a_document_of_one_word():
    one = reader().text_to_instance([["Anna"]], [], genre="news")
    for model in (build_paper(one), build(config(coarse_to_fine=True, inference_order=2), [one])):
        output = run(model, one)
        assert output["clusters"] == [[]]
        assert output["loss"].item() == 0
        output["loss"].backward()


@pytest.mark.parametrize("window", [None, 1])
@pytest.mark.parametrize("crossing", [False, True])
def test_a_document_without_candidates(crossing, window):
    """As where every word has more pieces than a span may have."""
    one = instance()
    model = build_paper(one, allow_crossing_spans=crossing, max_training_sentences=window)
    arguments = tensors(model, [one])
    for key in ("spans", "span_labels"):
        arguments[key] = torch.full_like(arguments[key][:, :1], -1)
    output = model.train(window is not None)(**arguments)
    assert output["loss"].item() == 0
    assert model.make_output_human_readable(output)["clusters"] == [[]]


def test_without_gold_clusters_there_is_no_loss():
    one = reader().text_to_instance(document(1)["sentences"])
    output = run(build_paper(one), one)
    assert "loss" not in output
    assert len(output["clusters"]) == 1


def test_metadata_of_another_reader_is_an_error():
    one = instance()
    model = build_paper(one)
    batch = tensors(model, [one])
    for key in ("sentence_lengths", "speakers", "genre"):
        stock = {name: value for name, value in batch["metadata"][0].items() if name != key}
        with pytest.raises(ValueError, match=f"no '{key}'"):
            model(**{**batch, "metadata": [stock]})


def test_a_span_wider_than_the_models_is_an_error():
    one = reader(max_span_width=6).text_to_instance(**document(1))
    with pytest.raises(ConfigurationError, match="a span of 6 tokens, expected at most 4"):
        run(build_paper(one), one)


def test_the_papers_config_draws_every_score_as_the_code_does(repository, monkeypatch):
    for name in (
        "COREF_TRAIN_DATA_PATH",
        "COREF_DEV_DATA_PATH",
        "COREF_TEST_DATA_PATH",
        "TURIAN_PATH",
    ):
        monkeypatch.setenv(name, "nowhere")
    path = repository / "training_config/table1/coref.jsonnet"
    regexes = Params.from_file(str(path)).as_dict()["model"]["initializer"]["regexes"]
    drawn = [regex for regex, how in regexes if how["type"] == "xavier_uniform"]
    names = [name for name, _ in build_paper(instance()).named_parameters()]
    scores = [name for name in names if name.endswith("_module.weight")]
    assert len(scores) == 3  # of mentions, of antecedents, and of a span's words
    for name in scores:
        assert any(re.search(regex, name) for regex in drawn), name


class Passes(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs):
        return self.layer(inputs)


SCORERS = [
    f"_{kind}_{part}"
    for kind in ("mention", "antecedent")
    for part in ("feedforward", "feedforward._module", "feedforward._module._linear_layers.0")
]


@pytest.mark.parametrize(
    "name",
    [
        *SCORERS,
        "_mention_scorer",
        "_antecedent_scorer._module",
        "_distance_embedding",
        "_endpoint_span_extractor._span_width_embedding",
    ],
)
def test_changed_layers_are_called(name):
    one = instance()
    model = build_paper(one)
    before = run(model, one)["loss"].item()
    parent, _, last = name.rpartition(".")
    layer = model.get_submodule(name)
    if last.isdigit():
        model.get_submodule(parent)[int(last)] = Passes(layer)
    else:
        setattr(model.get_submodule(parent), last, Passes(layer))
        model.get_submodule(name)._module = getattr(layer, "_module", None)
    assert run(model, one)["loss"].item() == pytest.approx(before, abs=1e-9)
    called = []
    layer.register_forward_hook(lambda m, i, out: called.append(1) or 0 * out)
    assert run(model, one)["loss"].item() != pytest.approx(before, abs=1e-3)
    assert called


KINDS = {
    "_endpoint_span_extractor": EndpointSpanExtractor,
    "_attentive_span_extractor": SelfAttentiveSpanExtractor,
}


@pytest.mark.parametrize("arguments", [{}, {"head_scores_from_context": False}])
@pytest.mark.parametrize("name", KINDS)
def test_span_extractors_are_called_where_they_were_changed(name, arguments, monkeypatch):
    one = instance()
    plain, hooked = build_paper(one, **arguments).train(), build_paper(one, **arguments).train()
    extractor, called = hooked.get_submodule(name), []
    handle = extractor.register_forward_hook(lambda m, i, out: called.append(out.shape))
    for model in (plain, hooked):
        torch.manual_seed(3)
        model(**tensors(model, [one, one]))["loss"].backward()
    assert called
    for expected, found in zip(plain.parameters(), hooked.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-9, atol=1e-9)
    handle.remove()
    before = run(hooked.eval(), one)["loss"].item()
    kind = type(extractor) if not arguments else KINDS[name]
    forward = kind.forward
    with monkeypatch.context() as patch:
        patch.setattr(kind, "forward", lambda *a, **n: 0 * forward(*a, **n))
        assert run(hooked, one)["loss"].item() != pytest.approx(before, abs=1e-3)
    assert run(hooked, one)["loss"].item() == before


def test_a_mode_changes_no_scores():
    one = instance()
    model = build_paper(one)
    before = run(model, one)["loss"].item()
    with FlopCounterMode(display=False) as counter:
        assert run(model, one)["loss"].item() == pytest.approx(before, abs=1e-6)
    assert counter.get_total_flops() > 0


@pytest.mark.parametrize("name", [SCORERS[2], SCORERS[5]])
@each_reweighting
def test_computed_weights_of_the_scorers_are_followed(name, reweight):
    """The same steps with the layer behind a wrapper, which is called."""
    one, losses = instance(), []
    for wraps in (False, True):
        model = build_paper(one)
        torch.manual_seed(2)
        layer = model.get_submodule(name)
        reweight(layer)
        if wraps:
            model.get_submodule(name[:-2])[0] = Passes(layer)
        model.eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            model(**tensors(model, [one]))["loss"].backward()
            optimizer.step()
        losses.append(run(model, one)["loss"].item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
