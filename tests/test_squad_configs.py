"""SQuAD's published setup: its number of parameters, its optimizer and averages."""

import math

import numpy
import pytest
import torch
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.training.optimizers import Optimizer

from tests.test_configs import in_folder


def table1(name):
    return in_folder("training_config/table1")[f"{name}.jsonnet"]


# Without words and biLM; squad.md's "cost", from document-qa's shapes.
PARAMETERS = {"squad": 1.26e6, "squad_elmo": 2.34e6}


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_published_model_has_the_published_number_of_parameters(name):
    config = table1(name)["model"]
    del config["text_field_embedder"]["token_embedders"]["tokens"]["pretrained_file"]
    if "elmo" in config:
        del config["elmo"]["pretrained_file"]
        # What is inside the biLM is not counted, and takes time to make.
        config["elmo"]["options"]["lstm"]["dim"] = 4
        config["elmo"]["options"]["char_cnn"].update(filters=[[1, 8]], n_highway=1)
    characters = [chr(c) for c in range(33, 123)]  # about as many as SQuAD has often
    vocab = Vocabulary(tokens_to_add={"token_characters": characters, "tokens": ["the"]})
    model = Model.from_params(Params(config), vocab=vocab)
    counted = {
        n: p.numel()
        for n, p in model.named_parameters()
        if "_elmo_lstm" not in n and "embedder_tokens" not in n
    }
    assert sum(counted.values()) == pytest.approx(PARAMETERS[name], rel=0.005)
    for weight in (model._phrase_layer, model._self_attention.encoder, model._span_end_encoder):
        values = weight._module.weight_hh_l0
        assert 0.09 < values.abs().max() <= 0.1
        assert (weight._module.bias_ih_l0 == 0).all()
    bound = math.sqrt(6 / sum(model._merge_attention.weight.shape))
    assert 0.99 * bound < model._merge_attention.weight.abs().max() <= bound
    assert (model._span_end_predictor.bias == 0).all()


def test_adadelta_has_tensorflows_constants():
    settings = table1("squad")["trainer"]["optimizer"]
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = Optimizer.from_params(Params(settings), model_parameters=[("weight", weight)])
    expected = weight.detach().numpy().copy()
    squared, moved = numpy.zeros(2), numpy.zeros(2)
    for step in range(20):
        gradient = numpy.array([0.3, -1.0]) * (step - 4)
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        # Zeiler 2012, as TensorFlow's ApplyAdadelta writes it.
        squared = 0.95 * squared + 0.05 * gradient**2
        update = numpy.sqrt(moved + 1e-8) / numpy.sqrt(squared + 1e-8) * gradient
        moved = 0.95 * moved + 0.05 * update**2
        expected -= update
    numpy.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-12)


def test_the_moving_average_has_no_ramp():
    settings = table1("squad")["trainer"]["moving_average"]
    from allennlp.training.moving_average import MovingAverage

    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    average = MovingAverage.from_params(Params(settings), parameters=[("weight", weight)])
    weight.data.fill_(3.0)
    for step in (1, 2):
        average.apply(step)
    average.assign_average_value()
    assert weight.item() == pytest.approx(3.0 - 2.0 * 0.999**2, rel=1e-9)
