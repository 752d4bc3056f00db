"""AllenNLP's interpreters on every model and predictor: one number a token, or one clear error."""

from typing import Any, NamedTuple

import numpy
import pytest
import torch
from allennlp.common import Params
from allennlp.data import DatasetReader, Token, Vocabulary
from allennlp.data.tokenizers import WhitespaceTokenizer
from allennlp.interpret.attackers import Hotflip, InputReduction
from allennlp.interpret.saliency_interpreters import SaliencyInterpreter
from allennlp.models import Model
from allennlp.predictors import Predictor

from elmo_plugin import plugin
from tests.cases import first_quick
from tests.models.coref_cases import config as coref
from tests.models.squad_cases import WhitespaceTokenizerWithOffsets, squad
from tests.models.tasks import bcn, esim, srl
from tests.tiny_bilm import OPTIONS

SENTENCE = ["Anna", "saw", "Bo", "in", "Rome", "."]
TAGS = {
    "BIOUL": "U-PER O U-PER O B-LOC L-LOC",
    "BIO": "B-PER O B-PER O B-LOC I-LOC",
    "IOB1": "I-PER O I-PER O I-LOC I-LOC",
}
ROLES = "B-ARG0 B-V B-ARG1 B-ARGM-LOC I-ARGM-LOC O"
DOCUMENT = [
    ["Anna", "saw", "the", "dog", "."],
    ["She", "fed", "it", "and", "left", "."],
    ["It", "sat", "."],
]
PREMISE, HYPOTHESIS = "A dog runs in the park .", "It moves ."
QUESTION, PASSAGE = "Who saw Bo ?", "Anna saw Bo in Rome ."
SEED = 6  # with others, all ReLUs of a small model may be dead
WORD_DIM, ELMO_DIM = 5, OPTIONS.embedding_dim


class Task(NamedTuple):
    """A model's parameters by the width of its input, its reader, predictor and input."""

    model: Any
    reader: dict[str, Any]
    tokenizer: Any
    examples: list[Any]
    predictor: str
    inputs: dict[str, Any]
    # The texts whose gradients are grad_input_1, grad_input_2 and so on, and their fields.
    texts: list[list[str]]
    fields: list[str]


def tagger(encoding):
    def model(width):
        return {
            "type": "crf_tagger",
            "label_encoding": encoding,
            "encoder": {"type": "lstm", "input_size": width, "hidden_size": 4},
        }

    return model


def document(**switches):
    def model(width):
        return coref(elmo_dim=width - WORD_DIM, **switches)

    words = [word for sentence in DOCUMENT for word in sentence]
    return Task(
        model,
        {"type": "coref", "max_span_width": 4},
        None,
        [(DOCUMENT, [[(0, 0), (5, 5)], [(2, 3), (7, 7), (11, 11)]])],
        "coreference_resolution",
        {"sentences": DOCUMENT},
        [words],
        ["text"],
    )


TOKENS = [Token(word) for word in SENTENCE]
TASKS = {
    **{
        f"ner in {encoding}": Task(
            tagger(encoding),
            {"type": "conll2003"},
            None,
            [(TOKENS, None, None, tags.split())],
            "sentence_tagger",
            {"tokens": SENTENCE},
            [SENTENCE],
            ["tokens"],
        )
        for encoding, tags in TAGS.items()
    },
    "srl": Task(
        srl,
        {"type": "srl"},
        None,
        [(TOKENS, [0, 1, 0, 0, 0, 0], ROLES.split())],
        "semantic_role_labeling",
        {"tokens": SENTENCE, "verbs": ["saw"]},
        [SENTENCE],
        ["tokens"],
    ),
    "snli": Task(
        esim,
        {"type": "snli"},
        WhitespaceTokenizer,
        [(PREMISE, HYPOTHESIS, label) for label in ("neutral", "entailment", "contradiction")],
        "textual_entailment",
        {"premise": PREMISE, "hypothesis": HYPOTHESIS},
        [HYPOTHESIS.split(), PREMISE.split()],
        ["hypothesis", "premise"],
    ),
    "sst": Task(
        bcn,
        {"type": "sst_tokens"},
        None,
        [(SENTENCE, str(label)) for label in range(5)],
        "text_classifier",
        {"sentence": " ".join(SENTENCE)},
        [SENTENCE],
        ["tokens"],
    ),
    "squad": Task(
        lambda width: {
            "type": "bidaf_self_attention",
            **squad(elmo_dim=width - WORD_DIM, at_input=True),
        },
        {"type": "squad"},
        WhitespaceTokenizerWithOffsets,
        [(QUESTION, PASSAGE, None, [(0, 4)], ["Anna"])],
        "reading_comprehension",
        {"question": QUESTION, "passage": PASSAGE},
        [QUESTION.split(), PASSAGE.split()],
        ["question", "passage"],
    ),
    "coref": document(),
    "coref by sentence": document(encode_by_sentence=True),
}


def predictor(name, place, files):
    """
    `place`: "words" without ELMo, "embedder" and "model" with ELMo there, "alone" with ELMo as the
    model's only input.
    """
    assert plugin
    task = TASKS[name]
    has_elmo = place != "words"
    indexers = {} if place == "alone" else {"tokens": {"type": "single_id"}}
    if has_elmo:
        indexers["elmo"] = {"type": "elmo_characters"}
    reader = DatasetReader.from_params(
        Params({**task.reader, "token_indexers": indexers}),
        **({"tokenizer": task.tokenizer()} if task.tokenizer else {}),
    )
    instances = [reader.text_to_instance(*example) for example in task.examples]
    for instance in instances:
        reader.apply_token_indexers(instance)
    vocab = Vocabulary.from_instances(instances)
    config = task.model(WORD_DIM * (place != "alone") + ELMO_DIM * has_elmo)
    embedders = (
        {} if place == "alone" else {"tokens": {"type": "embedding", "embedding_dim": WORD_DIM}}
    )
    if place == "embedder" and name.startswith("coref"):
        config["mention_feedforward"]["input_dim"] += ELMO_DIM
        config["antecedent_feedforward"]["input_dim"] += 3 * ELMO_DIM
    if place == "embedder":
        embedders["elmo"] = {"type": "elmo_token_embedder", **files, "state": "reset"}
    config["text_field_embedder"] = {"token_embedders": embedders}
    if place in ("model", "alone"):
        config |= {"elmo": {**files, "state": "reset"}, "use_input_elmo": True}
    torch.manual_seed(SEED)
    model = Model.from_params(Params(config), vocab=vocab)
    if name.startswith("ner"):  # so that spans are predicted
        outside = vocab.get_token_index("O", "labels")
        model.tag_projection_layer._module.bias.data[outside] = -5.0
    return Predictor.by_name(task.predictor)(model.eval(), reader)


def pairs(places):
    """
    Every task with ELMo at each place, where one of NER's encodings stands for all. Coreference
    needs words for its heads.
    """
    return [
        (name, place)
        for name in TASKS
        for place in places
        if not (place == "alone" and name.startswith("coref"))
        and (place == "words" or name not in ("ner in BIO", "ner in IOB1"))
    ]


@first_quick(
    ("name", "place"), [*pairs(["model"]), *pairs(["words", "embedder", "alone"])], count=3
)
def test_saliency_has_one_number_a_token(name, place, bilm_files):
    task, made = TASKS[name], predictor(name, place, bilm_files)
    for interpreter in SaliencyInterpreter.list_available():
        found = SaliencyInterpreter.by_name(interpreter)(made).saliency_interpret_from_json(
            task.inputs
        )
        assert found
        for instance in found.values():
            numbers = [instance[f"grad_input_{k + 1}"] for k in range(len(task.texts))]
            assert list(map(len, numbers)) == list(map(len, task.texts))
            assert len(instance) == len(task.texts)
            assert numpy.isfinite(numbers[0]).all()
            assert sum(numbers[0]) == pytest.approx(1)


@first_quick(
    ("name", "place"), [("sst", "embedder"), *pairs(["model"]), *pairs(["words"])], count=3
)
def test_hotflip_changes_words_of_a_text(name, place, bilm_files):
    task = TASKS[name]
    attacker = Hotflip(predictor(name, place, bilm_files))
    attacker.initialize()
    for k, (text, field) in enumerate(zip(task.texts, task.fields)):
        found = attacker.attack_from_json(task.inputs, field, f"grad_input_{k + 1}")
        assert found["original"] == text
        assert all(len(final) == len(text) for final in found["final"])
        assert any(final != text for final in found["final"])


@first_quick("name", dict.fromkeys(["ner in BIOUL", "snli", "srl", *TASKS]), count=3)
def test_input_reduction_removes_words_or_says_why_not(name, bilm_files):
    task = TASKS[name]
    made = predictor(name, "model", bilm_files)
    attacker = InputReduction(made)
    if name == "srl":  # so that there is a word to remove
        outside = made._model.vocab.get_token_index("O", "labels")
        made._model.tag_projection_layer._module.bias.data[outside] = 50.0
    if name == "srl" or name.startswith("coref"):
        with pytest.raises(ValueError, match="input reduction is not possible"):
            attacker.attack_from_json(task.inputs, task.fields[0])
        return
    found = attacker.attack_from_json(task.inputs, task.fields[0])
    assert all(0 < len(final) <= len(task.texts[0]) for final in found["final"])
    # In IOB1 this tagger takes every word for part of a span.
    assert name == "ner in IOB1" or any(len(final) < len(task.texts[0]) for final in found["final"])


def test_input_reduction_without_a_span_says_why_not(bilm_files):
    made = predictor("ner in BIO", "words", bilm_files)
    outside = made._model.vocab.get_token_index("O", "labels")
    made._model.tag_projection_layer._module.bias.data[outside] = 50.0
    with pytest.raises(ValueError, match="keeps the tokens of a span, and the model predicts none"):
        InputReduction(made).attack_from_json({"tokens": SENTENCE})


@pytest.mark.parametrize(
    ("tags", "encoding"), [(["O"] * len(SENTENCE), "BIO"), (TAGS["BIO"].split(), None)]
)
def test_tags_without_spans_are_interpreted_together(tags, encoding, bilm_files):
    made = predictor("ner in BIO", "words", bilm_files)
    made._model.label_encoding = encoding
    instance = made._json_to_instance({"tokens": SENTENCE})
    (labeled,) = made.predictions_to_labeled_instances(instance, {"tags": tags})
    assert labeled["tags"].labels == tags
    assert "ignore_loss_on_o_tags" not in labeled.fields


@pytest.mark.parametrize("encoding", TAGS)
def test_each_span_is_interpreted_alone(encoding, bilm_files):
    made = predictor(f"ner in {encoding}", "words", bilm_files)
    instance = made._json_to_instance({"tokens": SENTENCE})
    tags = TAGS[encoding].split()
    labeled = made.predictions_to_labeled_instances(instance, {"tags": tags})
    assert [one["tags"].labels for one in labeled] == [
        [tag if place in places else "O" for place, tag in enumerate(tags)]
        for places in ([0], [2], [4, 5])
    ]


class Recorder(torch.nn.Module):
    """A module in whose place it stands, which notes that it was called."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.called = inner, False

    def forward(self, *inputs):
        self.called = True
        return self.inner(*inputs)


@pytest.mark.parametrize("name", ["ner in BIO", "srl", "snli", "sst", "squad", "coref by sentence"])
def test_embedders_that_a_model_got_later_are_called(name, bilm_files):
    made = predictor(name, "model", bilm_files)
    later = {}
    for part in ("_elmo", "_text_field_embedder", "text_field_embedder"):
        if part in made._model._modules:
            later[part] = Recorder(made._model._modules[part])
            setattr(made._model, part, later[part])
    made.predict_json(TASKS[name].inputs)
    assert [one.called for one in later.values()] == [True, True]


@pytest.mark.parametrize("name", ["snli", "sst", "squad"])
def test_texts_are_arguments_or_json(name):
    made, inputs = predictor(name, "words", None), TASKS[name].inputs
    assert made.predict(*inputs.values()) == made.predict_json(inputs)


def test_a_sentence_to_tag_is_text_or_tokens():
    made = predictor("ner in BIO", "words", None)
    found = made.predict("Anna saw Bo in Rome.")
    assert found == made.predict_json({"tokens": SENTENCE})
    words = ["New York", "\U0001f600", "a\x00"]
    assert made.predict_json({"tokens": words})["words"] == words


def test_the_most_probable_label_becomes_gold():
    made = predictor("snli", "words", None)
    instance = made._json_to_instance(TASKS["snli"].inputs)
    assert [token.text for token in instance["premise"]] == PREMISE.split()
    outputs = {"label_logits": [0.1, 2.0, -1.0]}
    (labeled,) = made.predictions_to_labeled_instances(instance, outputs)
    assert labeled["label"].label == 1
    assert "label" not in instance.fields


def test_an_instance_needs_one_predicate(bilm_files):
    made = predictor("srl", "words", bilm_files)
    with pytest.raises(ValueError, match="found 2 predicates, expected one"):
        Hotflip(made).attack_from_json({"tokens": SENTENCE, "verbs": [1, 3]})
    found = SaliencyInterpreter.by_name("simple-gradient")(made).saliency_interpret_from_json(
        {"tokens": SENTENCE, "verbs": [1, 3]}
    )
    assert len(found) == 2


def test_names_of_allennlp_0_9_are_known():
    tasks = ("semantic-role-labeling", "textual-entailment", "coreference-resolution")
    tasks += ("reading-comprehension", "machine-comprehension")
    for name in (*tasks, "sentence-tagger", "text-classifier"):
        assert Predictor.by_name(name).__module__.startswith("elmo_plugin.predictors."), name
