"""The mix: against `ScalarMix` and torch's gradients, and in components that train."""

import numpy
import pytest
import spacy
import torch
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import fix_random_seed, set_dropout_rate

import elmo_plugin.spacy.component  # noqa: F401
from elmo_plugin.bilm.model.scalar_mix import ScalarMix
from elmo_plugin.spacy.mix import elmo_mix

WIDTH = 5
NO_LAYERS = r"no layers in doc\._\.elmo, expected the component 'elmo'"


def docs_with_layers(rng, lengths=(3, 1, 4), num_layers=3):
    nlp = spacy.blank("en")
    docs = []
    for length in lengths:
        doc = Doc(nlp.vocab, words=["x"] * length)
        doc._.elmo = rng.normal(size=(num_layers, length, WIDTH)).astype("float32")
        docs.append(doc)
    return docs


def test_outputs_and_gradients_are_those_of_scalar_mix():
    rng = numpy.random.default_rng(0)
    docs = docs_with_layers(rng)
    s, gamma = rng.normal(size=3).astype("float32"), numpy.asarray([1.7], dtype="float32")
    model = elmo_mix(WIDTH)
    model.initialize()
    model.set_param("s", s)
    model.set_param("gamma", gamma)
    peer = ScalarMix(3, initial_scalar_parameters=s.tolist())
    with torch.no_grad():
        peer.gamma.fill_(float(gamma[0]))
    outputs, backprop = model(docs, is_train=True)
    expected = [peer([torch.from_numpy(layer) for layer in doc._.elmo]) for doc in docs]
    for output, mixed in zip(outputs, expected, strict=True):
        numpy.testing.assert_allclose(output, mixed.detach().numpy(), atol=1e-6)
    gradients = [rng.normal(size=output.shape).astype("float32") for output in outputs]
    backprop(gradients)
    torch.autograd.backward(expected, [torch.from_numpy(one) for one in gradients])
    theirs = [one.grad.item() for one in peer.scalar_parameters]
    numpy.testing.assert_allclose(model.get_grad("s"), theirs, atol=1e-4)
    numpy.testing.assert_allclose(model.get_grad("gamma"), peer.gamma.grad.numpy(), atol=1e-4)


def test_dropout_is_trainings_alone_and_its_gradient_follows():
    docs = docs_with_layers(numpy.random.default_rng(0), lengths=(200,))
    model = elmo_mix(WIDTH)
    model.initialize()
    set_dropout_rate(model, 0.5)
    (plain,) = model.predict(docs)
    numpy.testing.assert_allclose(plain, docs[0]._.elmo.mean(axis=0), atol=1e-6)
    (dropped,), backprop = model(docs, is_train=True)
    kept = dropped != 0
    assert 0.4 < kept.mean() < 0.6
    numpy.testing.assert_allclose(dropped[kept], 2 * plain[kept], rtol=1e-5)
    # What was dropped has no share in the gradient.
    backprop([numpy.where(kept, 0, 1).astype("float32")])
    assert abs(model.get_grad("gamma")).item() == 0


@pytest.fixture
def pipeline():
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"cache": "memory"})
    tok2vec = {"@architectures": "elmo_plugin.ElmoMix.v1", "width": 512}
    ner = {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "ner",
        "extra_state_tokens": False,
        "hidden_width": 16,
        "maxout_pieces": 2,
        "use_upper": True,
        "tok2vec": tok2vec,
    }
    nlp.add_pipe("ner", config={"model": ner})
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}
    nlp.add_pipe("tagger", config={"model": tagger})
    return nlp


TEXTS = [
    (["Anna", "went", "to", "Oslo", "."], {0: "PER", 3: "LOC"}, ["N", "V", "P", "N", "."]),
    (["Oslo", "is", "far", "."], {0: "LOC"}, ["N", "V", "A", "."]),
    (["He", "met", "Anna", "."], {2: "PER"}, ["P", "V", "N", "."]),
]


def examples_of(nlp):
    examples = []
    for words, entities, tags in TEXTS:
        ents = ["O"] * len(words)
        for place, label in entities.items():
            ents[place] = f"B-{label}"
        reference = Doc(nlp.vocab, words=words, ents=ents, tags=tags)
        examples.append(Example(Doc(nlp.vocab, words=words), reference))
    return examples


def mix_of(nlp, name):
    (found,) = (one for one in nlp.get_pipe(name).model.walk() if one.name == "elmo_mix")
    return found


@pytest.mark.slow
def test_each_component_learns_a_mix_of_its_own(pipeline, tmp_path):
    examples = examples_of(pipeline)
    fix_random_seed(0)
    optimizer = pipeline.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    for _ in range(30):
        losses = pipeline.update(examples_of(pipeline), sgd=optimizer, annotates=["elmo"])
    assert losses["ner"] < 1
    mixes = [mix_of(pipeline, name).get_param("s").copy() for name in ("ner", "tagger")]
    assert all(abs(mix).max() > 1e-3 for mix in mixes)
    assert abs(mixes[0] - mixes[1]).max() > 1e-3
    docs = list(pipeline.pipe([Doc(pipeline.vocab, words=words) for words, _, _ in TEXTS]))
    for doc, (_, entities, tags) in zip(docs, TEXTS):
        assert {entity.start: entity.label_ for entity in doc.ents} == entities
        assert [token.tag_ for token in doc] == tags
    pipeline.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    for name, mix in zip(("ner", "tagger"), mixes):
        numpy.testing.assert_array_equal(mix_of(loaded, name).get_param("s"), mix)
    for doc in docs:
        again = loaded(Doc(loaded.vocab, words=[token.text for token in doc]))
        assert [(e.start, e.label_) for e in again.ents] == [(e.start, e.label_) for e in doc.ents]


def test_layers_that_are_missing_or_others_are_an_error(pipeline):
    examples = examples_of(pipeline)
    optimizer = pipeline.initialize(lambda: examples)
    with pytest.raises(ValueError, match=NO_LAYERS):
        pipeline.update(examples_of(pipeline), sgd=optimizer)
    pipeline.remove_pipe("elmo")
    with pytest.raises(ValueError, match=NO_LAYERS):
        pipeline("Anna went home .")
    model = elmo_mix(WIDTH + 1)
    model.initialize()
    docs = docs_with_layers(numpy.random.default_rng(0))
    message = "has 3 layers of width 5 for 3 tokens, expected 3 of width 6 for 3"
    with pytest.raises(ValueError, match=message):
        model.predict(docs)
