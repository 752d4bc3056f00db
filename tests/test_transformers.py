"""
ELMo in transformers: with the version that AllenNLP has, and in `make libraries` with the newest.
"""

import pickle
import shutil
from pathlib import Path

import numpy
import pytest
import torch
import transformers
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PretrainedConfig,
    PreTrainedModel,
    pipeline,
)

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo
from elmo_plugin.transformers import (
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)

pytestmark = pytest.mark.libraries
TEXTS = ["The cat sat.", "", "Dogs bark at the moon."]
HEADS = {
    AutoModelForTokenClassification: ElmoForTokenClassification,
    AutoModelForSequenceClassification: ElmoForSequenceClassification,
}


def with_learned_mix(model):
    """Another gamma, and weights that differ."""
    with torch.no_grad():
        mix = model.base_model.scalar_mix_0
        mix.gamma.fill_(3.0)
        for number, parameter in enumerate(mix.scalar_parameters):
            parameter.fill_(number / 2)
    return model.eval()


def encoded(texts=TEXTS):
    return ElmoTokenizer()(texts, padding=True, return_tensors="pt")


def test_the_model_is_elmo(bilm_files):
    model = with_learned_mix(ElmoModel.from_bilm(**bilm_files))
    elmo = Elmo(**bilm_files, state="primed", dropout=0.0)
    elmo.load_state_dict(model.state_dict())
    batch = encoded()
    found = model(**batch, output_hidden_states=True)
    expected = elmo(batch["input_ids"])["elmo_representations"][0]
    assert torch.equal(found.last_hidden_state, expected)
    assert [tuple(layer.shape) for layer in found.hidden_states] == [(3, 6, 12)] * 3
    assert torch.equal(model(**batch, return_dict=False)[0], expected)
    unused = {"token_type_ids": None, "inputs_embeds": None, "output_attentions": False}
    assert torch.equal(model(**batch, **unused)[0], expected)
    model.config.return_dict = False
    assert isinstance(model(**batch), tuple)
    model.config.return_dict = True
    # The mask counts where it has fewer tokens than the ids.
    batch["attention_mask"][2, 2:] = 0
    short = model(**encoded(["Dogs bark"])).last_hidden_state
    torch.testing.assert_close(model(**batch).last_hidden_state[2, :2], short[0])


@pytest.mark.parametrize("encoder_size", [0, 4])
@pytest.mark.parametrize("auto", HEADS)
def test_saved_and_loaded_gives_the_same_bits(auto, encoder_size, bilm_files, tmp_path):
    made = HEADS[auto].from_bilm(**bilm_files, num_labels=3, encoder_size=encoder_size)
    assert not made.training
    logits = with_learned_mix(made)(**encoded()).logits
    made.save_pretrained(tmp_path / "saved")
    ElmoTokenizer(num_characters=40).save_pretrained(tmp_path / "saved")
    for path in bilm_files.values():
        Path(path).unlink()
    loaded = auto.from_pretrained(tmp_path / "saved")
    assert type(loaded) is HEADS[auto]
    assert not loaded.training
    assert torch.equal(loaded(**encoded()).logits, logits)
    trained = {name for name, one in loaded.named_parameters() if one.requires_grad}
    assert not any("_elmo_lstm" in name for name in trained)
    assert {"classifier.bias", "elmo.scalar_mix_0.gamma"} <= trained
    base = AutoModel.from_pretrained(tmp_path / "saved")
    assert base.scalar_mix_0.gamma.item() == 3.0
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").num_characters == 40
    # A new head over the saved biLM, whose weights stay.
    other = auto.from_pretrained(tmp_path / "saved", num_labels=2, ignore_mismatched_sizes=True)
    assert other(**encoded()).logits.shape[-1] == 2
    assert torch.equal(
        other.elmo(**encoded()).last_hidden_state, made.elmo(**encoded()).last_hidden_state
    )


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_settings_are_saved(state, bilm_files, tmp_path):
    made = ElmoModel.from_bilm(
        **bilm_files, state=state, requires_grad=True, dropout=0.25, do_layer_norm=True
    )
    made.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded._elmo_lstm.state == state
    assert all(one.requires_grad for one in loaded.parameters())
    assert (loaded._dropout.p, loaded.scalar_mix_0.do_layer_norm) == (0.25, True)


def test_what_a_checkpoint_lacks_is_initialized(bilm_files, tmp_path):
    made = with_learned_mix(ElmoForTokenClassification.from_bilm(**bilm_files))
    bilm = {name: one for name, one in made.state_dict().items() if "_elmo_lstm" in name}
    made.save_pretrained(tmp_path, state_dict=bilm)
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert [one.item() for one in loaded.elmo.scalar_mix_0.parameters()] == [1.0, 0.0, 0.0, 0.0]
    assert 0 < loaded.classifier.weight.abs().max() < 1
    assert all(torch.equal(loaded.state_dict()[name], one) for name, one in bilm.items())


class OwnModel(PreTrainedModel):
    """What a user writes around our `Elmo`."""

    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.elmo = Elmo(**config.files, dropout=0.0, state="primed")
        self.head = torch.nn.Linear(12, 3)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv1d)):
            torch.nn.init.normal_(module.weight)

    def forward(self, ids):
        return self.head(self.elmo(ids)["elmo_representations"][0])


def test_a_users_own_model_keeps_gamma_and_the_bilm(bilm_files, tmp_path):
    ids = batch_to_ids([["The", "cat"], ["sat"]])
    model = OwnModel(PretrainedConfig(files=bilm_files)).eval()
    plain = Elmo(**bilm_files, dropout=0.0, state="primed").eval()
    found, expected = (one(ids)["elmo_representations"][0] for one in (model.elmo, plain))
    assert torch.equal(found, expected)
    with torch.no_grad():
        model.elmo.scalar_mixes[0].gamma.fill_(3.0)
    expected = model(ids)
    model.save_pretrained(tmp_path / "own")
    loaded = OwnModel.from_pretrained(tmp_path / "own").eval()
    assert loaded.elmo.scalar_mixes[0].gamma.item() == 3.0
    torch.testing.assert_close(loaded(ids), expected, atol=1e-6, rtol=1e-5)


def test_a_text_has_the_same_logits_alone_and_in_a_batch(bilm_files):
    for options in ({}, {"encoder_size": 4}, {"pooling": "max"}, {"encoder_size": 4}):
        model = ElmoForSequenceClassification.from_bilm(**bilm_files, **options).eval()
        together = model(**encoded()).logits
        alone = torch.cat([model(**encoded([text])).logits for text in TEXTS])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_losses(bilm_files):
    loss_of_classes = torch.nn.functional.cross_entropy
    batch = encoded(["a b c", "d"])
    tagger = ElmoForTokenClassification.from_bilm(**bilm_files, num_labels=3).eval()
    labels = torch.tensor([[0, 1, 2], [2, -100, -100]])
    found = tagger(**batch, labels=labels)
    picked = found.logits.log_softmax(dim=-1)
    by_hand = -(picked[0, 0, 0] + picked[0, 1, 1] + picked[0, 2, 2] + picked[1, 0, 2]) / 4
    torch.testing.assert_close(found.loss, by_hand)
    found.loss.backward()
    assert tagger.elmo.scalar_mix_0.gamma.grad.abs() > 0
    for num_labels, labels, loss in (
        (3, torch.tensor([2, 0]), loss_of_classes),
        (1, torch.tensor([[0.5], [2.0]]), torch.nn.functional.mse_loss),
        (2, torch.rand(2, 2), torch.nn.functional.binary_cross_entropy_with_logits),
        (3, torch.tensor([[2], [0]]), lambda logits, gold: loss_of_classes(logits, gold[:, 0])),
    ):
        model = ElmoForSequenceClassification.from_bilm(**bilm_files, num_labels=num_labels).eval()
        found = model(**batch, labels=labels)
        torch.testing.assert_close(found.loss, loss(found.logits, labels))


def test_what_is_refused(bilm_files):
    model = ElmoForTokenClassification.from_bilm(**bilm_files)
    with pytest.raises(ValueError, match="does not support"):
        model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="options is None, expected a biLM's options"):
        ElmoModel(ElmoConfig())
    with pytest.raises(ValueError, match="pooling is 'sum'"):
        ElmoConfig(pooling="sum")
    tokenizer = ElmoTokenizer()
    for arguments, match in (
        ({"text_pair": "b"}, "text_pair"),
        ({"return_overflowing_tokens": True}, "of any length"),
        ({"padding_side": "left"}, "expected 'right'"),
        ({"padding": "max_length"}, "without max_length"),
        ({"text": ["a", 3]}, "text 1 is 3, expected a string"),
        ({"text": [["a"]]}, "is_split_into_words=True for lists of words"),
        ({"text": {"text": ["a"]}}, "the batch is {'text': "),
    ):
        with pytest.raises(ValueError, match=match):
            tokenizer(**{"text": "a", **arguments})
    batch = encoded()
    for given in ({"token_type_ids": batch["attention_mask"]}, {"output_attentions": True}):
        with pytest.raises(ValueError, match="expected none: ELMo reads characters"):
            model(**batch, **given)
    with pytest.raises(ValueError, match="are on the device meta"):
        model.to("meta")(**batch)
    with pytest.raises(ValueError, match="expected 'right'"):
        ElmoTokenizer(padding_side="left")
    with pytest.raises(NotImplementedError, match="computes each word from its characters"):
        model.resize_token_embeddings(300)
    for method in ("get_vocab", "add_tokens", "add_special_tokens"):
        with pytest.raises(NotImplementedError, match="has no vocabulary that could be listed"):
            getattr(tokenizer, method)(["<e>"])
    assert tokenizer.all_special_tokens == []
    tokenizer.padding_side = "left"
    with pytest.raises(ValueError, match="expected 'right'"):
        tokenizer(["a b", "c"], padding=True)


def test_tokens_are_words():
    tokenizer = ElmoTokenizer()
    text = "Don't cross-examine Mr. O’Neil, 4,000 times: 你好 !"
    found = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    words = ["Don't", "cross-examine", "Mr", ".", "O’Neil", ",", "4,000", "times", ":", "你好", "!"]
    assert found.tokens() == words == tokenizer.tokenize(text)
    assert found.word_ids() == list(range(11))
    assert [text[start:end] for start, end in found["offset_mapping"]] == words
    assert found.char_to_token(7) == 1
    assert found["special_tokens_mask"] == [0] * 11
    assert tokenizer.get_special_tokens_mask([*found["input_ids"], [0] * 50]) == [0] * 11 + [1]
    assert numpy.array_equal(found["input_ids"], batch_to_ids([words])[0])
    assert tokenizer.decode(found["input_ids"]) == " ".join(words)
    assert ElmoTokenizer(split_punctuation=False)("The end.").tokens() == ["The", "end."]
    broken = "\ud83d The\ud83d end"
    offsets = tokenizer(broken, return_offsets_mapping=True)["offset_mapping"]
    assert [broken[slice(*one)] for one in offsets] == ["\ud83d", "The", "\ud83d", "end"]


def test_words_are_not_split():
    sentences = [["New York", "", "big"], ["x.y", "\ud800z"], ["\ud800", "a"]]
    found = ElmoTokenizer()(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    assert torch.equal(found["input_ids"], batch_to_ids(sentences))
    assert found["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 0]]
    assert found.word_ids(1) == [0, 1, None]
    assert found.word_ids(0) == [0, 1, 2]
    assert ElmoTokenizer().batch_decode(found["input_ids"]) == ["New York  big", "x.y z", " a"]


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ({}, {"truncation": True, "max_length": 2}, "a b"),
        ({}, {"max_length": 2}, "a b"),
        ({}, {"truncation": False, "max_length": 2}, "a b c"),
        ({}, {"truncation": True}, "a b c"),
        ({}, {"truncation": True, "max_length": 10**30}, "a b c"),
        ({}, {"truncation": True, "max_length": 0}, ""),
        ({"model_max_length": 2}, {"truncation": "longest_first"}, "a b"),
        ({"truncation_side": "left"}, {"truncation": True, "max_length": 2}, "b c"),
    ],
)
def test_truncation_is_that_of_fast_tokenizers(settings, options, words):
    found = ElmoTokenizer(**settings)(list("abc"), is_split_into_words=True, **options)
    assert found.tokens() == words.split()


def test_other_calls_of_tokenizers():
    tokenizer = ElmoTokenizer(model_max_length=4)
    batch = tokenizer(["a b", "c"], padding=True, return_length=True)
    assert batch["length"] == [2, 2]
    assert tokenizer.batch_encode_plus(["a b", "c"], padding=True, return_length=True) == batch
    assert tokenizer.encode_plus("a b") == tokenizer("a b")
    assert tokenizer("a b", padding="max_length", truncation=True)["attention_mask"] == [1, 1, 0, 0]
    assert tokenizer.max_len_single_sentence == 4
    ids = tokenizer("a b c")["input_ids"]
    if hasattr(tokenizer, "prepare_for_model"):  # until transformers 5
        found = tokenizer.prepare_for_model(ids, truncation=True, max_length=2)
        assert found == {"input_ids": ids[:2], "attention_mask": [1, 1]}


def test_shapes_without_a_token():
    tokenizer = ElmoTokenizer()
    found = tokenizer("", return_tensors="pt", return_offsets_mapping=True)
    assert found["input_ids"].shape == (1, 0, 50)
    assert found["offset_mapping"].shape == (1, 0, 2)
    assert found["attention_mask"].dtype == torch.int64
    empty = [tokenizer(""), tokenizer("")]
    assert tokenizer.pad(empty, return_tensors="pt")["input_ids"].shape == (2, 0, 50)
    some = [tokenizer(""), tokenizer("a")]
    assert tokenizer.pad(some, return_tensors="np")["input_ids"].shape == (2, 1, 50)
    single = tokenizer.pad(tokenizer(""), padding="max_length", max_length=5, return_tensors="pt")
    assert single["input_ids"].shape == (5, 50)
    assert single["attention_mask"].tolist() == [0] * 5
    assert tokenizer.pad(tokenizer(""), return_tensors="pt")["input_ids"].shape == (0, 50)
    assert tokenizer.pad([]) == tokenizer([]) == {"input_ids": [], "attention_mask": []}


def test_collators_pad():
    tokenizer = ElmoTokenizer()
    lists = [{**tokenizer("a b c"), "labels": [1, 2, 3]}, {**tokenizer("a"), "labels": [0]}]
    found = DataCollatorForTokenClassification(tokenizer)(lists)
    assert torch.equal(found["input_ids"], batch_to_ids([["a", "b", "c"], ["a"]]))
    assert found["labels"].tolist() == [[1, 2, 3], [0, -100, -100]]
    assert found["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    texts = [{**tokenizer("a b c"), "label": 1}, {**tokenizer("a"), "label": 0}]
    found = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=4)(texts)
    assert found["input_ids"].shape == (2, 4, 50)
    tensors = [{"input_ids": torch.tensor(one["input_ids"])} for one in lists]
    found = tokenizer.pad(tensors)
    assert torch.equal(found["input_ids"], batch_to_ids([["a", "b", "c"], ["a"]]))
    found = tokenizer.pad(tokenizer("a b"), padding="max_length", max_length=3)
    assert found["attention_mask"] == [1, 1, 0]


def test_the_tokenizer_keeps_no_state():
    tokenizer = ElmoTokenizer()
    before = pickle.dumps(tokenizer)
    tokenizer(["a b", "c"], padding=True, truncation=True, max_length=1, return_tensors="pt")
    DataCollatorWithPadding(tokenizer)([tokenizer("a b c"), tokenizer("a")])
    assert pickle.dumps(tokenizer) == before


def test_adapters_of_peft_learn_and_are_saved(bilm_files, tmp_path):
    peft = pytest.importorskip("peft", reason="run by make libraries")
    model = ElmoForTokenClassification.from_bilm(**bilm_files, num_labels=3).eval()
    batch, labels = encoded(["a b c", "d"]), torch.tensor([[0, 1, 2], [2, -100, -100]])
    before = model(**batch).logits.detach()
    layers = r".*(input_linearity|state_linearity|state_projection|_projection|_layers\.\d)"
    config = peft.LoraConfig(r=2, target_modules=layers, modules_to_save=["classifier"])
    adapted = peft.get_peft_model(model, config)
    torch.testing.assert_close(adapted(**batch).logits, before, atol=1e-5, rtol=1e-5)
    adapters = {name: one for name, one in adapted.named_parameters() if "lora_" in name}
    assert len(adapters) == 2 * (3 * 4 + 3)
    optimizer = torch.optim.Adam(adapters.values(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        adapted(**batch, labels=labels).loss.backward()
        optimizer.step()
    assert all(one.grad.abs().max() > 0 for one in adapters.values())
    after = adapted.eval()(**batch).logits.detach()
    assert (after - before).abs().max() > 0.01
    adapted.save_pretrained(tmp_path)
    base = ElmoForTokenClassification.from_bilm(**bilm_files, num_labels=3)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    torch.testing.assert_close(loaded(**batch).logits, after, atol=1e-5, rtol=1e-5)
    merged = loaded.merge_and_unload()(**batch).logits
    torch.testing.assert_close(merged, after, atol=1e-4, rtol=1e-4)


def test_the_same_function_has_the_same_fingerprint(tmp_path):
    datasets = pytest.importorskip("datasets", reason="run by make libraries")
    from datasets.fingerprint import Hasher

    tokenizer = ElmoTokenizer()

    def features(batch):
        return tokenizer(batch["text"], padding=True)

    before = Hasher.hash(features)
    data = datasets.Dataset.from_dict({"text": ["a b", "c"]}).map(features, batched=True)
    DataCollatorWithPadding(tokenizer)([{"input_ids": one} for one in data["input_ids"]])
    assert Hasher.hash(features) == before
    assert torch.equal(torch.tensor(data["input_ids"][:]), batch_to_ids([["a", "b"], ["c"]]))


def test_pipelines(bilm_files, tmp_path):
    labels = {0: "O", 1: "B-X", 2: "I-X"}
    model = ElmoForTokenClassification.from_bilm(**bilm_files, id2label=labels)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 5.0, 0.0]))
    model.save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    tagger = pipeline("token-classification", model=str(tmp_path), tokenizer=str(tmp_path))
    found = tagger("The cat, again")
    places = [(one["word"], one["start"], one["end"]) for one in found]
    assert places == [("The", 0, 3), ("cat", 4, 7), (",", 7, 8), ("again", 9, 14)]
    assert {one["entity"] for one in found} == {"B-X"}
    texts = ["The cat, again", "", "Cats"]
    assert [*map(len, tagger(texts, batch_size=3))] == [4, 0, 1]
    for strategy in ("simple", "first"):
        grouped = tagger("The cat", aggregation_strategy=strategy)
        found = [(one["entity_group"], one["word"]) for one in grouped]
        assert found == [("X", "The"), ("X", "cat")]
    if transformers.__version__ >= "5":
        found = tagger([["New York", "shone"]], is_split_into_words=True)[0]
        assert [(one["word"], one["end"]) for one in found] == [("New York", 8), ("shone", 14)]
        sentences = [["New York", "", "shone"], ["a"]]
        found = tagger(sentences, is_split_into_words=True, batch_size=2)
        assert [[one["word"] for one in words] for words in found] == sentences
    classifier = ElmoForSequenceClassification.from_bilm(**bilm_files).eval()
    classify = pipeline("text-classification", model=classifier, tokenizer=ElmoTokenizer())
    alone, together = classify(TEXTS), classify(TEXTS, batch_size=3)
    assert {one["label"] for one in alone} <= {"LABEL_0", "LABEL_1"}
    assert [one["score"] for one in together] == pytest.approx([one["score"] for one in alone])
    features = pipeline("feature-extraction", model=classifier.elmo, tokenizer=ElmoTokenizer())
    assert [len(one[0]) for one in features(TEXTS, batch_size=3)] == [6, 6, 6]


def test_pushed_to_the_hub(bilm_files, tmp_path, monkeypatch):
    """The hub cannot be reached here: a folder stands in for it behind the client's calls."""
    import huggingface_hub
    from transformers.utils import hub

    class Repository(str):
        repo_id = "me/elmo"

    def create_commit(*arguments, operations, **named):
        for one in operations:
            target = tmp_path / "hub" / one.path_in_repo
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(one.path_or_fileobj, target)

    monkeypatch.setattr(hub, "create_repo", lambda *_, **__: Repository("me/elmo"), raising=False)
    monkeypatch.setattr(hub, "create_commit", create_commit, raising=False)
    api = huggingface_hub.HfApi
    monkeypatch.setattr(api, "create_repo", lambda *_, **__: Repository("me/elmo"))
    monkeypatch.setattr(api, "create_commit", create_commit)
    made = with_learned_mix(ElmoForTokenClassification.from_bilm(**bilm_files))
    made.push_to_hub("me/elmo")
    ElmoTokenizer().push_to_hub("me/elmo")
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "hub")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hub")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert torch.equal(loaded(**batch).logits, made(**batch).logits)
