"""Find the edits that add ELMo to a config, by building and running its model."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader
from allennlp.data.token_indexers import (
    PretrainedTransformerIndexer,
    PretrainedTransformerMismatchedIndexer,
    SingleIdTokenIndexer,
    TokenIndexer,
)
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models import Model
from allennlp.models.archival import extracted_archive
from allennlp.modules import TokenEmbedder
from allennlp.modules.elmo import Elmo
from allennlp.modules.token_embedders import ElmoTokenEmbedder
from allennlp.nn import InitializerApplicator

from elmo_plugin.bilm.files.names import NAMED_BILMS, find_options
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.edits import trial_data
from elmo_plugin.edits.components import Argument, Path, get, replaced, shown, walk
from elmo_plugin.edits.probe import Outcome, Probe
from elmo_plugin.old_configs import check_not_of_0_9

FILES = ("options_file", "weight_file", "options", "pretrained_file")
# Names of integers that may be widths, and of those that are not.
WIDTH = re.compile("dim|size|width|units|channels|features", re.IGNORECASE)
COUNT = re.compile(r"(^|_)(num|n|min|max)_|layers|heads|blocks|kernel|batch|seed|beam|steps")
MOST_WIDTHS, MOST_TRIALS, MOST_ELSEWHERE, MOST_STEPS = 16, 60, 4, 8
SMALL = ElmoOptions(512, 4, 2, 4, ((1, 4),), 1)
TRANSFORMERS = (
    PretrainedTransformerIndexer,
    PretrainedTransformerMismatchedIndexer,
    PretrainedTransformerTokenizer,
)
BILM = "_elmo_lstm"  # is in the name of each parameter of a biLM


class Edit(NamedTuple):
    """An edit of a config: the path of a value, the value before and after it, and the reason."""

    path: Path
    old: Any
    new: Any
    reason: str


class AddedElmo:
    """
    An evaluated training config to which the biLM `weights` is added: to its readers, to its text
    field embedders, and to the widths of the layers behind these. If the config has ELMo, its
    weights are replaced.

    # Raises

    `ConfigurationError`, `ValueError`, `FileNotFoundError`
        If the config has no place for ELMo, a class is not registered, or there is no such biLM.
    """

    _probe: Probe

    def __init__(self, config: dict[str, Any], weights: str) -> None:
        # No two keys share a value, since AllenNLP empties what it reads.
        self.config = config = json.loads(json.dumps(config))
        self.edits: list[Edit] = []
        self.notes: list[str] = []  # what there is to say beside the edits
        self.problem: str | None = None  # what could not be done
        self._weights, self._options = weights, _sizes(weights, None)
        check_not_of_0_9(config)
        for one in _reader_arguments(config):
            if one.builds(*TRANSFORMERS):
                raise ValueError(
                    f"{shown(one.path)} is of a transformer, in whose place ELMo would stand; "
                    "expected a config that reads words, such as with single_id"
                )
        arguments = list(walk(Model, config.get("model"), ("model",)))
        present = [one for one in arguments if one.builds(Elmo, ElmoTokenEmbedder)]
        embedders = [one.path for one in arguments if one.is_dict_of(TokenEmbedder) and one.given]
        if not embedders and not present:
            raise ValueError(self._no_place())

        self._choices, self._is_real, note = trial_data.instances(config, "dataset_reader")
        if note is not None:
            self.notes.append(note)
        known = all(_options(one.value) for one in present)
        chosen = self._choose()
        # Where ELMo's weights are not known, nor are the widths behind it.
        baseline = self._probe.baseline if known else Outcome(None)
        width = self._options.embedding_dim
        step: int | None = width
        if present:
            old = _options(present[0].value)
            step = width - old.embedding_dim if known and old else None
            for one in present:
                if weights in (one.value.get("pretrained_file"), one.value.get("options_file")):
                    continue
                for key in FILES:
                    new = weights if key == "options_file" else None
                    self._edit((*one.path, key), new, f"ELMo's weights become {weights}")
        else:
            self._add(embedders)
        self._instances = trial_data.instances(self.config, "dataset_reader")[0][chosen]
        if step != 0:
            self._widen(baseline, step)
        self._protect_from_initializers()
        self._own_error = baseline.error
        if baseline.error is not None:
            self.notes.append(
                f"the config's own model stops, and this one there, so that widths behind it may "
                f"be missing: {_line(baseline)}"
            )
        if re.search("language_model|_lm$", str(get(config, ("model", "type")))):
            self.notes.append("ELMo has read the words that a language model is to predict")

    def _edit(self, path: Path, new: Any, reason: str) -> None:
        old = get(self.config, path)
        if old != new:
            new = copy.deepcopy(new)
            self.edits.append(Edit(path, old, new, reason))
            self.config = replaced(self.config, path, new)

    # --- the three edits --------------------------------------------------------------------------

    def _add(self, embedders: list[Path]) -> None:
        """Add ELMo to the readers, and to the text field embedders at these paths."""
        indexer: dict[str, Any] = {"type": "elmo_characters"}
        if isinstance(self._options, ManyLangsOptions):
            indexer["code_points"] = True
        if self._options.num_characters != 50:
            indexer["max_characters_per_token"] = self._options.num_characters
        slots = [one for one in _reader_arguments(self.config) if one.is_dict_of(TokenIndexer)]
        paths = [*embedders, *(slot.path for slot in slots)]
        taken = {name for path in paths for name in get(self.config, path) or ()}
        names = ("elmo", *(f"elmo_{number}" for number in range(2, 100)))
        key = next(name for name in names if name not in taken)
        for slot in slots:
            alone = [one.path[0] for one in slots].count(slot.path[0]) == 1
            self._add_to_reader(slot, alone, key, indexer)
        value = {"type": "elmo_token_embedder", "options_file": self._weights, "dropout": 0.0}
        for path in embedders:
            reason = f"ELMo adds {self._options.embedding_dim} elements to each token's vector"
            self._edit((*path, key), value, reason)

    def _add_to_reader(self, slot: Argument, alone: bool, key: str, indexer: Any) -> None:
        """Add the indexer to a reader's argument: its only one, or of fields the model embeds."""
        part = str(slot.path[0])
        marked = replaced(self.config, (*slot.path, key), indexer)
        before, after = (
            trial_data.text_fields(trial_data.instances(config, part)[0][-1])
            for config in (self.config, marked)
        )
        fields = {
            name: field
            for (name, field), (_, new) in zip(before, after)
            if key in new.token_indexers.keys() - field.token_indexers.keys()
        }
        read = fields.keys() & self._probe.consumed
        if not (alone or (read if self._probe.consumed else "target" not in shown(slot.path))):
            return
        reason = "the reader also gives each token's characters"
        if slot.value is not None:
            self._edit((*slot.path, key), indexer, reason)
        elif fields:  # the reader's own indexers are used if the config has none
            own = fields[min(read or fields)].token_indexers
            new = {name: _indexer_config(one, slot.path) for name, one in own.items()}
            self._edit(slot.path, {**new, key: indexer}, f"{reason}, beside its own indexers")

    def _widen(self, baseline: Outcome, step: int | None) -> None:
        """Change widths until the model runs as far as that of the original config."""
        batches = trial_data.batches(self._instances, self._probe.vocabulary)
        refused: list[str] = []
        tries: list[Path] = []

        def run(config: dict[str, Any]) -> Outcome:
            return self._probe.run(_for_trial(config)["model"], batches)

        def search(
            config: dict[str, Any], start: Outcome, end: Outcome, depth: int
        ) -> list[tuple[Path, int, int]]:
            """Return changes that bring the model further than `start`, from where it ends now."""
            best: tuple[int, Any] = (-1, None)
            elsewhere = []
            for one in _candidates(config, end, step):
                path, _, new = one
                if len(tries) == MOST_TRIALS:
                    break
                tries.append(path)
                tried = run(replaced(config, path, new))
                if tried.ends_like(baseline):
                    return [one]
                if start.is_behind(tried):
                    best = max(best, (tried.num_operations, one), key=lambda pair: pair[0])
                elif (tried.lines, tried.numbers) != (end.lines, end.numbers):
                    elsewhere.append((one, tried))
                    refused.append(f"with {shown(path)} {new}: {_line(tried)}")
            if best[1] is not None:
                return [best[1]]
            # A layer may refuse one width until another has changed, too.
            for one, tried in elsewhere[: MOST_ELSEWHERE * depth]:
                further = search(replaced(config, one[0], one[2]), start, tried, depth - 1)
                if further:
                    return [one, *further]
            return []

        run(self.config)  # a process's first biLM does more, which would count as progress
        for _ in range(MOST_WIDTHS):
            outcome = run(self.config)
            if outcome.ends_like(baseline):
                return
            refused.clear()
            tries.clear()
            changes = search(self.config, outcome, outcome, 2)
            for path, old, new in changes:
                how = "grows" if new > old else "shrinks"
                self._edit(path, new, f"its input {how} by {abs(new - old)}")
            if not changes:
                break
        keys = dict.fromkeys(shown(path) for path in tries)
        tried = f"of no use was a change of {', '.join(keys)}" if keys else "no key has this width"
        self.problem = "; ".join([_line(outcome), tried, *refused[:1]])

    def _protect_from_initializers(self) -> None:
        """Keep the model's initializers from the biLM's weights."""
        names = [name for name in self._probe.parameters if BILM in name]
        is_known = len(names) > 0  # else the model was never built
        for one in list(walk(Model, self.config["model"], ("model",))):
            if not one.builds(InitializerApplicator):
                continue
            prevent = one.value.get("prevent_regexes") or []
            names = [name for name in names if not any(re.search(each, name) for each in prevent)]
            for regex, _ in one.value.get("regexes") or []:
                if not is_known or any(re.search(regex, name) for name in names):
                    reason = f"the initializer of {regex} would overwrite the biLM's weights"
                    self._edit((*one.path, "prevent_regexes"), [*prevent, BILM], reason)
                    break

    # --- trials -----------------------------------------------------------------------------------

    def _choose(self) -> int:
        """Run the original model on each choice of instances, and return which brings it on."""
        model = _for_trial(self.config)["model"]
        chosen = 0
        for index, instances in enumerate(self._choices):
            vocabulary = trial_data.vocabulary(self.config, instances, self._is_real)
            tried = Probe(model, trial_data.batches(instances, vocabulary), vocabulary)
            succeeds = tried.baseline.error is None
            if index == 0 or succeeds or self._probe.baseline.is_behind(tried.baseline):
                chosen, self._probe = index, tried
            if succeeds:
                break
        return chosen

    def check(self) -> str:
        """
        Build the edited config's vocabulary and model, and take a batch's loss and gradients.
        Return a sentence that says what was run. Any error of the model is raised.
        """
        if self._own_error is not None:
            return "no batch, since the config's own model does not run"
        here = self._weights == "embedded" or FilePath(self._weights).exists()
        config = _for_trial(self.config, is_real=here)
        vocabulary = trial_data.vocabulary(config, self._instances, self._is_real)
        model = Model.from_params(Params(copy.deepcopy(config["model"])), vocab=vocabulary)
        model.train()
        losses = []
        for batch in trial_data.batches(self._instances, vocabulary):
            loss = model(**batch).get("loss")
            if loss is not None:
                loss.backward()
                losses.append(loss)
        mixes = [one for name, one in model.named_parameters() if "scalar_mix" in name]
        grads = [one.grad for one in mixes if one.requires_grad]
        if losses and grads and not any(one is not None for one in grads):
            raise ConfigurationError("ELMo's scalar mix gets no gradient from the loss")
        if not all(one.isfinite().all() for one in [*losses, *grads] if one is not None):
            raise ConfigurationError("the loss or ELMo's gradient is not finite")
        what = "the data's first instances" if self._is_real else "an invented sentence"
        with_what = self._weights if here else f"random weights in place of {self._weights}"
        ended = "loss and gradients are finite" if losses else "no loss without labels"
        return f"one batch of {what} was run with {with_what}: {ended}"

    def _no_place(self) -> str:
        """Say why a model cannot have ELMo."""
        model = get(self.config, ("model",))
        name = model if isinstance(model, str) else get(model, ("type",))
        archive = get(model, ("archive_file",))
        if name == "from_archive" and archive and _is_here(archive):
            with extracted_archive(archive) as folder:
                archived = Params.from_file(FilePath(folder) / "config.json").as_dict()["model"]
            inner = AddedElmo({**self.config, "model": archived}, self._weights)
            widths = [
                f"{shown(one.path)}: {one.new}" for one in inner.edits if isinstance(one.new, int)
            ]
            return (
                f"model.archive_file {archive} holds a trained model, whose widths are fixed; "
                f"expected a model to train. With ELMo, its config needs {', '.join(widths)}"
            )
        return (
            f"model {name} has no token_embedders to which ELMo could be added (a transformer "
            "reads its own word pieces); expected a model with a text field embedder"
        )


def _candidates(
    config: dict[str, Any], outcome: Outcome, step: int | None
) -> list[tuple[Path, int, int]]:
    """Return the integers of a model that may be the width to change, before and after it."""
    arguments = list(walk(Model, config["model"], ("model",)))
    others = [
        one.path
        for one in arguments
        if one.is_dict_of(TokenEmbedder) or one.builds(Elmo, InitializerApplicator)
    ]
    integers = {one.path: one for one in arguments if type(one.value) is int}
    leaves = [
        (path, one.value)
        for path, one in integers.items()
        if not COUNT.search(_name(path)) and not any(path[: len(it)] == it for it in others)
    ]
    leaves.sort(key=lambda leaf: (not WIDTH.search(_name(leaf[0])), not integers[leaf[0]].given))
    exact = [
        (path, value, new)
        for path, value in leaves
        for new in sorted(outcome.numbers)
        if value in outcome.numbers - {new}
        and (step is None or new - value in range(step, MOST_STEPS * step, step))
    ]
    wide = [
        (path, value, value + number * (step or 0))
        for number in (1, 2, 3)
        for path, value in leaves
        if WIDTH.search(_name(path))
    ]
    return exact if exact or step is None else wide


def _line(outcome: Outcome) -> str:
    first = (str(outcome.error).strip() or "no message").splitlines()[0]
    return f"{type(outcome.error).__name__}: {first[:300]}"


def _name(path: Path) -> str:
    return next(str(key) for key in reversed(path) if isinstance(key, str))


def _is_here(location: str) -> bool:
    return FilePath(location.removeprefix("(").split("!")[0].split("#")[0]).exists()


def _sizes(options: Any, weights: Any) -> ElmoOptions:
    """Return the sizes of a biLM; raise an error if it is not here."""
    source = options or weights or "original"
    location = str(NAMED_BILMS.get(source, (source,))[0]) if isinstance(source, str) else ""
    # A released biLM's name has its sizes, so that nothing needs to be downloaded.
    if "://" in location and (sizes := re.search(r"elmo_\d+x\d+_(\d+)_\d+cnn_", location)):
        return replace(SMALL, projection_dim=int(sizes[1]))
    return find_options(options, weights)


def _options(value: dict[str, Any]) -> ElmoOptions | None:
    """Return the sizes of the biLM that a config's arguments name, or `None` if it is not here."""
    options = value.get("options") or value.get("options_file")
    try:
        return _sizes(options, value.get("pretrained_file") or value.get("weight_file"))
    except (FileNotFoundError, ValueError):
        return None


def _stand_in(options: ElmoOptions | None) -> dict[str, Any]:
    """Return the content of the `options.json` of a small biLM whose layers have the same width."""
    of = options or SMALL
    sizes = of.projection_dim, SMALL.cell_size, of.num_layers, SMALL.char_embedding_dim
    return options_dict(ElmoOptions(*sizes, SMALL.filters, 1, of.num_characters))


def _for_trial(config: dict[str, Any], is_real: bool = False) -> dict[str, Any]:
    """
    Return a config whose model is quick to build: with small biLMs, without initializers, and with
    random values in place of those in files. If `is_real`, only files that are not here are left
    out.
    """
    for one in list(walk(Model, config["model"], ("model",))):
        if not is_real and one.builds(Elmo, ElmoTokenEmbedder):
            options = _options(one.value)
            if not isinstance(options, ManyLangsOptions):  # its dictionaries are in its file
                files = {key: None for key in FILES if key in one.value}
                value = {**one.value, **files, "options": _stand_in(options)}
                config = replaced(config, one.path, value)
        elif not is_real and one.builds(InitializerApplicator):
            config = replaced(config, one.path, {})
        elif one.path[-1] in ("pretrained_file", "weights_file"):
            file, options = (get(config, (*one.path[:-1], it)) for it in (one.path[-1], "options"))
            if isinstance(file, str) and not isinstance(options, dict):
                config = replaced(config, one.path, file if is_real and _is_here(file) else None)
    return config


def _reader_arguments(config: dict[str, Any]) -> Iterator[Argument]:
    for part in trial_data.READERS:
        if config.get(part):
            yield from walk(DatasetReader, config[part], (part,))


def _indexer_config(indexer: TokenIndexer, path: Path) -> dict[str, Any]:
    """Return the config of a reader's default indexer."""
    if type(indexer) is not SingleIdTokenIndexer:
        raise ValueError(
            f"{shown(path)} is not given, and the reader's own is {type(indexer).__name__}; "
            "expected the config to name it"
        )
    own, found = SingleIdTokenIndexer(), {"type": "single_id"}
    for name in ("namespace", "lowercase_tokens"):
        if getattr(indexer, name) != getattr(own, name):
            found[name] = getattr(indexer, name)
    return found
