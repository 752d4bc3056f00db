from collections import defaultdict

import numpy
import pytest
import torch
from allennlp.common import Params
from allennlp.modules import InputVariationalDropout
from allennlp.nn.util import get_text_field_mask
from squad_cases import DIM, QUESTIONS, build, instances, reader, squad

from elmo_plugin.models.bidaf_self_attention import BidafSelfAttention
from elmo_plugin.predictors.reading_comprehension import ReadingComprehensionPredictor
from tests.models.tasks import EMBEDDING_DIM, tensors
from tests.numpy_squad import Reference, best_span, loss

PLACEMENTS = [(False, False), (True, False), (False, True), (True, True)]
TOLERANCES = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def placed(bilm, at_input, at_output, **arguments):
    """Arguments of a model with ELMo where the flags say."""
    if not (at_input or at_output):
        return squad(**arguments)
    elmo = {
        **bilm,
        "num_output_representations": at_input + at_output,
        "dropout": 0.0,
        "state": "reset",
    }
    return squad(elmo, EMBEDDING_DIM, at_input, at_output, **arguments)


def elmo_model(bilm, at_input, at_output, dtype=torch.float32, **arguments):
    params = placed(bilm, at_input, at_output, **arguments)
    return build(params, "elmo" in params, dtype)


def batch_of(model, questions=QUESTIONS):
    return tensors(model, instances(questions, model._elmo is not None))


def embedded(model, tokens, at_input, at_output):
    """What goes into the shared GRU and what is put behind its output, by rows without padding."""
    mask = get_text_field_mask(tokens)
    words = model._text_field_embedder({"tokens": tokens["tokens"]})
    rows = [(words[i, mask[i]], None) for i in range(len(mask))]
    if model._elmo is not None:
        found = model._elmo(tokens["elmo"]["elmo_tokens"])["elmo_representations"]
        for i, (inputs, _) in enumerate(rows):
            if at_input:
                inputs = torch.cat([inputs, found[0][i, mask[i]]], dim=-1)
            rows[i] = (inputs, found[-1][i, mask[i]] if at_output else None)
    return [[None if t is None else t.detach().numpy() for t in row] for row in rows]


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize(("at_input", "at_output"), PLACEMENTS)
def test_equals_the_numpy_reference(bilm, at_input, at_output, dtype, tolerance):
    model = elmo_model(bilm, at_input, at_output, dtype)
    batch = batch_of(model)
    with torch.no_grad():
        output = model(**batch)
        passages = embedded(model, batch["passage"], at_input, at_output)
        questions = embedded(model, batch["question"], at_input, at_output)
    reference = Reference({name: w.numpy() for name, w in model.state_dict().items()})
    losses = []
    for row, (passage, question) in enumerate(zip(passages, questions, strict=True)):
        wanted = reference.logits(passage[0], question[0], passage[1], question[1])
        length = len(passage[0])
        for logits, name in zip(wanted, ("start", "end"), strict=True):
            found = output[f"span_{name}_logits"][row]
            numpy.testing.assert_allclose(found[:length].numpy(), logits, rtol=0, atol=tolerance)
            assert (output[f"span_{name}_probs"][row, length:] == 0).all()
        assert tuple(output["best_span"][row].tolist()) == best_span(*wanted, 17)
        losses.append(loss(*wanted, batch["metadata"][row]["token_spans"]))
    assert output["loss"].item() == pytest.approx(numpy.mean(losses), abs=tolerance)


def test_every_weight_matters_to_the_loss(bilm):
    """So that the reference test above sees each: none is multiplied by zero."""
    model = elmo_model(bilm, True, True, torch.float64)
    model(**batch_of(model))["loss"].backward()
    without_effect = {
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad and (weight.grad is None or not weight.grad.abs().max() > 1e-9)
    }
    # A softmax over the same words loses what all scores share: w_p . p_i of the c_i stays in the
    # maximum, the bias of the attention and of the logits does not.
    assert without_effect == {
        "_attention.similarity._bias",
        "_span_start_predictor.bias",
        "_span_end_predictor.bias",
    }


@pytest.mark.parametrize("placement", [(False, False), (True, True)])
def test_padding_and_the_rest_of_the_batch_change_nothing(bilm, placement):
    # In float64, for rounding in float32 depends on the processor.
    model = elmo_model(bilm, *placement, torch.float64)
    alone = [model(**batch_of(model, [question])) for question in QUESTIONS]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 2, 0]):
        together = model(**batch_of(model, [QUESTIONS[i] for i in order]))
        for row, i in enumerate(order):
            for name in ("span_start_logits", "span_end_logits"):
                found, wanted = together[name][row], alone[i][name][0]
                torch.testing.assert_close(found[: len(wanted)], wanted, rtol=0, atol=1e-6)
                assert (found[len(wanted) :] < -1e30).all()
            assert torch.equal(together["best_span"][row], alone[i]["best_span"][0])
            assert together["best_span_str"][row] == alone[i]["best_span_str"][0]


def test_no_answer_is_longer_than_the_bound():
    lengths = {}
    for bound in (1, 3, 17):
        for seed in range(8):
            model = build(squad(max_span_length=bound), seed=seed)
            first, last = model(**batch_of(model))["best_span"].unbind(dim=1)
            lengths.setdefault(bound, []).extend((last - first + 1).tolist())
    for bound, found in lengths.items():
        assert 1 <= min(found) <= max(found) <= bound
    assert max(lengths[3]) == 3  # so that the bound bounds
    assert max(lengths[17]) > 3


def test_a_passage_of_one_word_attends_to_nothing():
    model = build(squad())
    encoded = torch.ones(1, 1, DIM, dtype=torch.float64)
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert model._self_attention.weights(encoded, mask).item() == 0
    assert model(**batch_of(model, QUESTIONS[2:3]))["best_span"].tolist() is not None


def test_nothing_is_minus_one_at_the_start():
    vocab = build(squad()).vocab
    model = BidafSelfAttention.from_params(Params(squad()), vocab=vocab)
    assert model._self_attention.nothing.tolist() == [-1.0]


def test_the_two_losses():
    model = build(squad(span_loss="one_answer"))
    batch = batch_of(model, QUESTIONS[1:2])
    output = model(**batch)
    start, end = (output[f"span_{name}_probs"][0].detach().numpy() for name in ("start", "end"))
    spans = batch["metadata"][0]["token_spans"]
    assert spans == [(6, 8), (7, 8), (6, 8), (24, 26)]
    single = [-numpy.log(start[first] * end[last]) for first, last in spans]
    assert output["loss"].item() == pytest.approx(single[0])  # the most frequent one
    model.train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    torch.manual_seed(5)
    drawn = [model(**batch)["loss"].item() for _ in range(100)]
    counts = [sum(abs(loss - one) < 1e-9 for loss in drawn) for one in single]
    assert counts[1] + counts[3] + counts[0] == 100
    assert counts[0] == counts[2] > 35  # marked twice, drawn twice as often
    assert min(counts[1], counts[3]) > 12
    model._span_loss = "all_answers"
    both = -numpy.log(start[[6, 7, 24]].sum()) - numpy.log(end[[8, 26]].sum())
    assert model(**batch)["loss"].item() == pytest.approx(both)
    assert both < min(single)


@pytest.mark.parametrize("encoder", ["gru", "packed_gru", "coupled_lstm", "alternating_lstm"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision(encoder, dtype):
    """Their outputs need not be of the logits' type."""
    params = squad()
    for name in ("phrase_layer", "span_start_encoder", "span_end_encoder"):
        if encoder == "alternating_lstm":
            size = params[name].pop("hidden_size") * 2
            params[name] = {"input_size": params[name]["input_size"], "hidden_size": size,
                            "num_layers": 2}  # fmt: skip
        elif encoder == "coupled_lstm":
            params[name].pop("bidirectional")
        params[name]["type"] = encoder
    model = build(params, False, torch.float32).train()
    with torch.autocast("cpu", dtype):
        output = model(**batch_of(model))
    output["loss"].backward()
    assert output["span_start_logits"].dtype == dtype
    assert all(one.grad.isfinite().all() for one in model.parameters() if one.grad is not None)


def test_metrics_and_texts():
    model = build(squad())
    output = model.make_output_human_readable(model(**batch_of(model)))
    for text, (question, passage, _) in zip(output["best_span_str"], QUESTIONS, strict=True):
        assert text
        assert text in passage
        assert question in output["question"]
    metrics = model.get_metrics(reset=True)
    assert set(metrics) == {"start_acc", "end_acc", "span_acc", "em", "f1"}
    assert set(model.get_metrics().values()) == {0.0}
    # Bells . can only be answered by one of its two tokens or by both.
    for text in ("Bells", "Bells ."):
        model.get_metrics(reset=True)
        model._em_and_f1([text], [["Bells"]])
        assert model.get_metrics()["em"] == 1.0


def test_without_an_answer_there_is_no_loss():
    model = build(squad())
    batch = batch_of(model)
    for name in ("span_start", "span_end", "metadata"):
        del batch[name]
    output = model(**batch)
    assert "loss" not in output
    assert "best_span_str" not in output


def test_squad2_answers_with_its_token():
    model = build(squad())
    chosen = instances(QUESTIONS[2:3], no_answer_token="@@NO@@")
    batch = tensors(model, chosen)
    model._span_end_predictor.weight.data.zero_()
    model._span_start_predictor.weight.data.zero_()
    texts = set()
    original = torch.zeros(1, 3, dtype=torch.float64)
    for place in range(3):
        original.zero_()[0, place] = 9.0
        hooks = [
            getattr(model, f"_span_{name}_predictor").register_forward_hook(
                lambda *_: original.unsqueeze(-1)
            )
            for name in ("start", "end")
        ]
        texts.add(model(**batch)["best_span_str"][0])
        for hook in hooks:
            hook.remove()
    assert texts == {"Bells", ".", "@@NO@@"}


def test_the_predictor_answers_in_the_passages_own_characters():
    model = build(squad(), dtype=torch.float32)
    predictor = ReadingComprehensionPredictor(model, reader())
    passage = "The  shop\topens\n at nine ."
    found = predictor.predict("When does it open ?", passage)
    first, last = found["best_span"]
    assert found["best_span_str"] in passage
    assert found["best_span_str"].split() == passage.split()[first : last + 1]
    assert found["passage"] == passage
    assert predictor.predict_batch_json([{"question": "When ?", "passage": passage}] * 2)
    (labeled,) = predictor.json_to_labeled_instances({"question": "When ?", "passage": passage})
    assert labeled["span_start"].sequence_index <= labeled["span_end"].sequence_index


def test_dropout_stands_before_and_behind_both_shared_layers():
    model = build(squad(dropout=0.5), False, torch.float32).train()
    given, put_out = defaultdict(list), defaultdict(list)

    def keep(name, inputs, output):
        given[name].append(inputs[0] if inputs else None)
        put_out[name].append(output)

    for name, module in model.named_modules():
        module.register_forward_hook(
            lambda _, inputs, output, name=name: keep(name, inputs, output)
        )
    model(**batch_of(model))

    def dropped(name, tensors):
        return all(any(one is other for other in given[name]) for one in tensors)

    for name in ("_dropout", "_self_attention._dropout"):  # one mask for all words
        assert isinstance(model.get_submodule(name), InputVariationalDropout)
    # Passage and question each.
    assert dropped("_dropout", put_out["_text_field_embedder"] + put_out["_phrase_layer"])
    assert dropped("_dropout", put_out["_self_attention"])
    assert len(given["_dropout"]) == 5
    assert dropped("_self_attention._dropout", given["_self_attention"])
    assert dropped("_self_attention._dropout", put_out["_self_attention.encoder"])
    assert len(given["_self_attention._dropout"]) == 2
