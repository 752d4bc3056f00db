"""
bilm.jsonnet's steps against a plain version of bilm-tf's in float64: TensorFlow's variables, one
time step at a time, gradients by autograd. Only what is random is shared: batches, negatives and
dropout masks.
"""

import numpy
import pytest
import torch

from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.pretraining import config as configs
from elmo_plugin.bilm.pretraining.language_model import make_language_model
from elmo_plugin.bilm.pretraining.loop import Pretraining
from elmo_plugin.bilm.pretraining.softmax import LogUniformSampler
from tests.hdf5 import arrays
from tests.sample_pretraining import sample

NUM_BATCHES = 3
KEEP = 0.9
CLIP_NORM = 10.0


def variables(model, path):
    """TensorFlow's variables of a model, by the names in its weight file."""
    bilm, softmax = model.bilm, model.softmax
    save_weights(bilm, path, dtype="float64")
    found = arrays(path)
    found["softmax/W"] = softmax.weight.detach().numpy().copy()
    found["softmax/b"] = softmax.bias.detach().numpy().squeeze(1).copy()
    return {name: torch.tensor(array, requires_grad=True) for name, array in found.items()}


def token_vectors(v, characters, options):
    # Training has no +1: 261 characters.
    embedded = v["char_embed"][characters - 1]
    pieces = []
    for index, (width, _) in enumerate(options.filters):
        kernel = v[f"CNN/W_cnn_{index}"][0]
        positions = [
            torch.einsum("rwc,wcn->rn", embedded[:, start : start + width], kernel)
            for start in range(embedded.shape[1] - width + 1)
        ]
        convolved = torch.stack(positions) + v[f"CNN/b_cnn_{index}"]
        pieces.append(torch.relu(convolved.max(dim=0).values))
    x = torch.cat(pieces, dim=1)
    for index in range(options.num_highways):
        name = f"CNN_high_{index}"
        carry = torch.sigmoid(x @ v[f"{name}/W_carry"] + v[f"{name}/b_carry"])
        transform = torch.relu(x @ v[f"{name}/W_transform"] + v[f"{name}/b_transform"])
        x = carry * transform + (1 - carry) * x
    return x @ v["CNN_proj/W_proj"] + v["CNN_proj/b_proj"]


def cell(v, prefix, x, c, h):
    i, j, f, o = (torch.cat([x, h], dim=1) @ v[f"{prefix}/W_0"] + v[f"{prefix}/B"]).chunk(4, dim=1)
    c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(j)
    c = c.clamp(-3, 3)
    return c, ((torch.sigmoid(o) * torch.tanh(c)) @ v[f"{prefix}/W_P_0"]).clamp(-3, 3)


def sampled_loss(v, outputs, targets, negatives):
    num_words = len(v["softmax/W"])
    k = numpy.arange(num_words)
    p = (numpy.log(k + 2) - numpy.log(k + 1)) / numpy.log(num_words + 1)
    log_count = torch.tensor(numpy.log(-numpy.expm1(negatives.num_tries * numpy.log1p(-p))))
    logits = outputs @ v["softmax/W"].t() + v["softmax/b"] - log_count
    true = logits.gather(1, targets.unsqueeze(1))
    sampled = logits[:, negatives.draws].clone()
    sampled[targets.unsqueeze(1) == negatives.draws] = -torch.inf
    return -torch.log_softmax(torch.cat([true, sampled], dim=1), dim=1)[:, 0].mean()


def direction_loss(v, number, batch, state, options, masks, negatives):
    """One direction's loss; `state` is replaced by the final one."""
    num_steps, batch_size = batch.tokens[number].shape
    tokens = token_vectors(v, batch.characters.long(), options)[batch.tokens[number]]
    inputs = tokens.view(num_steps, batch_size, -1)
    for layer in range(options.num_layers):
        # DropoutWrapper: each layer's input, which the residual connection adds.
        inputs = inputs * next(masks).view(inputs.shape)
        c, h = (tensor.detach() for tensor in state[layer])
        prefix, outputs = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", []
        for step in range(num_steps):
            c, h = cell(v, prefix, inputs[step], c, h)
            outputs.append(h)
        state[layer] = c, h
        outputs = torch.stack(outputs)
        inputs = outputs + inputs if layer else outputs
    top = inputs.flatten(0, 1) * next(masks)
    return sampled_loss(v, top, batch.targets[number].flatten(), negatives)


def reference(v, batches, options, masks, negatives, num_steps):
    """bilm-tf's training steps; the losses, and `v` changed in place."""
    accumulators = {name: torch.ones_like(tensor) for name, tensor in v.items()}
    states = None
    losses = []
    for batch in batches:
        if states is None:
            rows = batch.targets.shape[2]
            zeros = [
                torch.zeros(rows, size) for size in (options.cell_size, options.projection_dim)
            ]
            states = [[tuple(zeros)] * options.num_layers for _ in range(2)]
        directions = [
            direction_loss(v, number, batch, states[number], options, masks, next(negatives))
            for number in range(2)
        ]
        loss = 0.5 * (directions[0] + directions[1])
        gradients = torch.autograd.grad(loss * num_steps, list(v.values()))
        norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
        losses.append((loss.item(), norm.item()))
        with torch.no_grad():
            for (name, tensor), gradient in zip(v.items(), gradients):
                gradient = gradient * min(1.0, CLIP_NORM / norm)
                accumulators[name] += gradient**2
                tensor -= 0.2 * gradient / torch.sqrt(accumulators[name])
    return losses


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def shared_randomness(monkeypatch):
    """Dropout masks and negatives, in the order in which the product asks for them."""
    masks, negatives = [], []

    def dropout(x, p, training):
        if not training:
            return x
        assert p == pytest.approx(1 - KEEP)
        masks.append((torch.rand(x.shape) < KEEP) / KEEP)
        return x * masks[-1]

    sample = LogUniformSampler.sample

    def remember(self, generator=None):
        negatives.append(sample(self, generator))
        return negatives[-1]

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    monkeypatch.setattr(LogUniformSampler, "sample", remember)
    return masks, negatives


def train(directory, masks, negatives, **model):
    sizes = {"model.options.lstm.dim": 10, "model.options.lstm.projection_dim": 6}
    loader = {"data_loader.batch_size": 4, "data_loader.batches_per_epoch": NUM_BATCHES}
    params = sample(**sizes, **loader, **{"trainer.num_epochs": 1})
    params["model"] |= model
    del params["validation_data_path"], params["validation_data_loader"]
    torch.manual_seed(0)
    text = configs.make_text(params)
    words = configs.make_vocabulary(params)
    model = make_language_model(words, **configs.make_model_arguments(params))
    run = Pretraining(model, words, text, None, directory, configs.make_settings(params))
    stepper = run.stepper
    batches, totals, norms = [], [], []
    step = stepper.step

    def watch(pairs, *arguments, **more):
        results, flags = step(pairs, *arguments, **more)
        batches.extend(pairs)
        totals.extend(one.loss for one in results)
        norms.extend(one.norm for one in results)
        return results, flags

    stepper.step = watch
    v = variables(model, directory / "before.hdf5")
    run.run()
    after = variables(model, directory / "after.hdf5")
    options = model.bilm.options
    expected = reference(v, batches, options, iter(masks), iter(negatives), num_steps=20)
    return list(zip(totals, norms)), expected, after, v


@pytest.mark.parametrize("sparse", [True, False])
def test_steps_of_the_recipe_are_bilm_tfs(tmp_path, float64, shared_randomness, sparse):
    softmax = {"num_samples": 20, "sparse": sparse}
    found, expected, after, v = train(tmp_path, *shared_randomness, softmax=softmax)
    assert len(found) == NUM_BATCHES
    numpy.testing.assert_allclose(found, expected, rtol=1e-7)
    assert max(norm for _, norm in expected) > CLIP_NORM, "nothing was clipped"
    assert set(after) == set(v)
    for name, tensor in v.items():
        # PyTorch's clipping adds 1e-6 to the norm.
        torch.testing.assert_close(after[name], tensor, rtol=1e-6, atol=1e-7, msg=name)


def test_a_step_without_the_loss_scale_is_another(tmp_path, float64, shared_randomness):
    model = {"softmax": {"num_samples": 20, "sparse": True}, "gradient_scale": 1.0}
    found, expected, after, v = train(tmp_path, *shared_randomness, **model)
    assert found[0][0] == pytest.approx(expected[0][0])
    assert found[0][1] == pytest.approx(expected[0][1] / 20)
    assert not torch.allclose(after["softmax/W"], v["softmax/W"], atol=1e-4)
