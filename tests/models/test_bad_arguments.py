"""Arguments that do not fit: what each model's one error names."""

import pytest
from allennlp.common.checks import ConfigurationError

from tests.models import tasks, test_coref
from tests.models.squad_cases import build as build_squad
from tests.models.squad_cases import gru, squad
from tests.models.tasks import MODELS, build, embedder, lstm, placed, relu


def ner(bilm, **change):
    build(tasks.ner(**change))


def srl(bilm, **change):
    build(tasks.srl(**change))


def qa(bilm, **change):
    build_squad(squad(**change))


def coref(bilm, **change):
    test_coref.build_paper(test_coref.instance(), **change)


def with_elmo(bilm, name, **change):
    params = {**placed(name, bilm, True), **change}
    build({key: value for key, value in params.items() if value is not None})


def esim(bilm, **change):
    with_elmo(bilm, "esim", **change)


def bcn(bilm, **change):
    with_elmo(bilm, "bcn", **change)


def twice(bilm, name):
    with_elmo(bilm, name, text_field_embedder=embedder(elmo={**bilm, "dropout": 0.0}))


def many(bilm, number, **flags):
    """More or fewer mixes than places."""
    params = placed("srl", bilm, True)
    params["elmo"]["num_output_representations"] = number
    build({**params, "use_input_elmo": False, **flags})


LSTM = test_coref.LSTM
ERRORS = [
    (ner, {"constrain_crf_decoding": True}, "constrain_crf_decoding is true", "label_encoding"),
    (ner, {"calculate_span_f1": True}, "calculate_span_f1 is true", "label_encoding"),
    (ner, {"label_encoding": "BILOU"}, "BILOU"),
    (ner, {"weight_strategy": "emission"}, "weight_strategy emission without label_weights"),
    (ner, {"label_weights": {"O": 1.0}, "weight_strategy": "x"}, "weight_strategy: x"),
    (ner, {"label_weights": {"Q": 1.0}}, "label_weights names 'Q'"),
    *((make, {"use_input_elmo": True}, "without elmo") for make in (ner, srl, qa, coref)),
    *((make, {"elmo": None}, "use_input_elmo: true", "without elmo") for make in (esim, bcn)),
    *((twice, {"name": name}, "'elmo' in text_field_embedder") for name in MODELS),
    (esim, {"use_output_elmo": True}, "num_output_representations: 1", "2"),
    (esim, {"encoder": lstm(5)}, "encoder input dim, but got 11 and 5"),
    (esim, {"projection_feedforward": relu(8, 3)}, "projection_feedforward input dim", "16"),
    (esim, {"inference_encoder": lstm(4)}, "inference_encoder input dim, but got 3 and 4"),
    (esim, {"output_feedforward": relu(8, 6)}, "output_feedforward input dim, but got 16 "),
    (bcn, {"use_integrator_output_elmo": True}, "num_output_representations: 1", "2"),
    (bcn, {"pre_encode_feedforward": relu(5, 3)}, "pre_encode_feedforward input dim", "11 "),
    (bcn, {"encoder": lstm(4)}, "encoder input dim, but got 3 and 4"),
    (bcn, {"integrator": lstm(4)}, "integrator input dim, but got 12 and 4"),
    (bcn, {"output_layer": relu(8, 5)}, "output_layer input dim, but got 16 and 8"),
    (bcn, {"output_layer": relu(16, 3)}, "number of labels, but got 3 and 5"),
    (ner, {"input_dim": 6}, "encoder input dim, but got 5 and 6"),
    (srl, {"input_dim": 6}, "encoder input dim, but got 8 and 9"),
    (many, {"number": 1}, "at least one of them true"),
    (many, {"number": 2, "use_input_elmo": True}, "flags are true, 1"),
    (many, {"number": 1, "use_input_elmo": True, "use_output_elmo": True}, "are true, 2"),
    (qa, {"span_loss": "some"}, "span_loss is 'some'"),
    (qa, {"max_span_length": 0}, "max_span_length is 0"),
    (qa, {"phrase_layer": gru(9)}, "phrase_layer input dim, but got 5 and 9"),
    (qa, {"residual_encoder": gru(9)}, "residual encoder input dim"),
    (qa, {"span_start_encoder": gru(9)}, "span_start_encoder input dim, but got 6 and 9"),
    (qa, {"span_end_encoder": gru(9)}, "span_end_encoder input dim, but got 12 and 9"),
    (coref, {"feature_size": 0}, "feature_size 0"),
    (coref, {"max_training_sentences": 0}, "max_training_sentences 0"),
    *((coref, {"genres": genres}, "different names") for genres in ([], ["a", "a"])),
    (coref, {"use_speakers": False}, "pair dim (3 span dims, 2 feature_size)"),
    (coref, {"context_layer": {**LSTM, "input_size": 4}}, "context_layer input dim"),
    (coref, {"context_layer": {**LSTM, "hidden_size": 4}}, "span dim"),
]


@pytest.mark.parametrize(("make", "change", "named"), [(m, c, n) for m, c, *n in ERRORS])
def test_what_does_not_fit_is_named(make, change, named, bilm):
    with pytest.raises(ConfigurationError) as error:
        make(bilm, **change)
    assert [one for one in named if one not in str(error.value)] == []
