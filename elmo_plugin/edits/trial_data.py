"""Instances, batches and vocabularies on which the model of a config is tried."""

import collections.abc
import copy
import inspect
import itertools
import time
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

from allennlp.common import Params
from allennlp.data import Batch, DatasetReader, Instance, Vocabulary
from allennlp.data.dataset_readers import MultiTaskDatasetReader
from allennlp.data.fields import ListField, MetadataField, TextField
from allennlp.data.tokenizers import Token, Tokenizer

from elmo_plugin.edits.components import replaced, walk

READERS = {"dataset_reader": "train_data_path", "validation_dataset_reader": "validation_data_path"}
MOST_INSTANCES, MOST_SECONDS, BATCH_SIZE = 1000, 4.0, 4
SENTENCE = "The old boat sank near the bank of the river ."
LABELS = ("O", "B-X", "I-X")  # of namespaces for which no data is there


def instances(config: dict[str, Any], part: str) -> tuple[list[list[Instance]], bool, str | None]:
    """
    Return the first instances of a reader's data, or, if the data is not here, invented instances
    to choose from; whether they are real; and a sentence about what is missing, or `None`.
    """
    path, reason = config.get(READERS[part]), f"{READERS[part]} is {config.get(READERS[part])!r}"
    reader, note = _reader(config[part], part)
    if path and "://" not in str(path):
        try:
            if found := read(reader, path):
                return [found], True, note
        except Exception as error:  # anything that a reader's code may raise
            reason = f"{reason}: {type(error).__name__}: {str(error)[:200]}"
    try:
        invented = invent(reader)
    except Exception as error:
        other = "validation_dataset_reader"  # may do without answers
        if part == other or not config.get(other):
            raise ValueError(f"{reason}; nor does {part} read a sentence: {error}") from error
        invented = instances(config, other)[0]
    return invented, False, f"the data was not read, so a sentence was invented ({reason})"


def _reader(config: Any, part: str) -> tuple[DatasetReader, str | None]:
    """Build a reader; if it cannot be built, with tokenizers that need no files, and a note."""

    def build(config: Any) -> DatasetReader:
        return DatasetReader.from_params(Params({"it": copy.deepcopy(config)}).pop("it"))

    try:
        return build(config), None
    except Exception as error:  # such as of a tokenizer's download
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        for one in list(walk(DatasetReader, config)):
            if one.builds(Tokenizer):
                config = replaced(config, one.path, {"type": "just_spaces"})
        note = f"{part} was tried with words between spaces as tokens ({reason})"
        try:
            return build(config), note
        except Exception:
            raise ValueError(f"{part} cannot be built: {reason}") from error


def vocabulary(config: dict[str, Any], found: list[Instance], is_real: bool) -> Vocabulary:
    """Return the vocabulary of instances: the config's own if they are real."""
    if not is_real:
        made = ProbeVocabulary.from_instances(found)
        # More words than a sampled softmax draws.
        made.add_tokens_to_namespace([f"word{number}" for number in range(10_000)])
        return made
    try:
        params = Params(copy.deepcopy(config.get("vocabulary") or {}))
        return Vocabulary.from_params(params, instances=found)
    except Exception:  # files that are not here
        return Vocabulary.from_instances(found)


class ProbeVocabulary(Vocabulary):
    """Vocabulary without empty namespaces, for a model whose training data is not there."""

    def get_vocab_size(self, namespace: str = "tokens") -> int:
        """Return the size of a namespace. An empty one gets `LABELS` first."""
        if super().get_vocab_size(namespace) == 0:
            self.add_tokens_to_namespace(list(LABELS), namespace)
        return super().get_vocab_size(namespace)

    def get_index_to_token_vocabulary(self, namespace: str = "tokens") -> dict[int, str]:
        """Return the tokens of a namespace by index. An empty one gets `LABELS` first."""
        self.get_vocab_size(namespace)
        return super().get_index_to_token_vocabulary(namespace)


def read(reader: DatasetReader, path: Any) -> list[Instance]:
    """
    Read the first instances of a data path, from each task of a multi-task reader: a batch of them,
    however long that takes, and what else can be read in a few seconds.
    """
    if isinstance(reader, MultiTaskDatasetReader):
        return [one for task, inner in reader.readers.items() for one in read(inner, path[task])]
    end, found = time.monotonic() + MOST_SECONDS, []
    for instance in itertools.islice(reader.read(path), MOST_INSTANCES):
        found.append(instance)
        if len(found) >= BATCH_SIZE and time.monotonic() >= end:
            break
    return found


def invent(reader: DatasetReader) -> list[list[Instance]]:
    """
    Return choices of instances that the reader's `text_to_instance` makes of an invented sentence:
    of all arguments that can be invented, such as a label, and of the required ones.

    # Raises

    `Exception`
        The reader's first error, if it makes no instance.
    """
    parts = [[*one.values()] if isinstance(one, dict) else [one] for one in vars(reader).values()]
    wrapped = [one for one in itertools.chain(*parts) if isinstance(one, DatasetReader)]
    if isinstance(reader, MultiTaskDatasetReader):
        made = []
        for task, inner in reader.readers.items():
            for instance in invent(inner)[0]:
                instance.add_field("task", MetadataField(task))
                made.append(instance)
        return [made]
    if wrapped:  # such as by sharded
        return invent(wrapped[0])
    choices, errors = [], []
    for with_all in (True, False):
        try:
            instance = reader.text_to_instance(**_arguments(reader, with_all))
            reader.apply_token_indexers(instance)
            list(text_fields([instance]))
            choices.append([instance])
        except Exception as error:  # anything that a reader's code may raise
            errors.append(error)
    if not choices:
        raise errors[0]
    return choices


def _arguments(reader: DatasetReader, with_all: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(reader.text_to_instance).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = _invented(parameter.annotation, bool(found), with_all)
        if parameter.default is parameter.empty or not found or (with_all and value is not None):
            found[name] = value
    return found


def _invented(annotation: Any, is_label: bool, with_all: bool) -> Any:
    """Return a value of an annotated type, of which each list is as long as the sentence."""
    words, origin, arguments = SENTENCE.split(), get_origin(annotation), get_args(annotation)
    if origin is Union:  # rather words than a string
        best = max(arguments, key=lambda one: (len(get_args(one)), get_args(one) != (int,)))
        return _invented(best, is_label, with_all)
    if annotation in (str, int):
        return SENTENCE if annotation is str else 0
    if origin is dict:
        return collections.defaultdict(list) if with_all else None
    if origin not in (list, collections.abc.Sequence):
        return None
    if str in (arguments[0], *get_args(arguments[0])) and get_origin(arguments[0]) is not list:
        return [LABELS[0]] * len(words) if is_label else words
    if arguments[0] is int:
        return [int(number == 3) for number in range(len(words))]
    if arguments[0] is Token:
        places = itertools.accumulate((len(word) + 1 for word in words), initial=0)
        tokens = [Token(word, idx=place) for word, place in zip(words, places)]
        return tokens if with_all or not is_label else None
    if get_args(arguments[0]) == (str,):
        return [words, words]
    if with_all and get_args(arguments[0]) == (int,):
        return [[0] for _ in words]
    return None


def text_fields(instances: list[Instance]) -> Iterator[tuple[str, TextField]]:
    """Yield the text fields of instances with the names of the fields that hold them."""
    for instance in instances:
        fields = list(instance.fields.items())
        for name, field in fields:  # which grow
            if isinstance(field, TextField):
                yield name, field
            elif isinstance(field, ListField):
                fields += [(name, one) for one in field.field_list]


def batches(instances: list[Instance], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return instances as batches, one for each set of fields (each task)."""
    groups: dict[Any, list[Instance]] = {}
    for instance in instances:
        task = instance.fields["task"].metadata if "task" in instance.fields else None  # type: ignore[attr-defined]
        groups.setdefault((task, *sorted(instance.fields)), []).append(instance)
    found = []
    for group in groups.values():
        # Copies: what is indexed is not counted in another vocabulary.
        batch = Batch(copy.deepcopy(group[:BATCH_SIZE]))
        batch.index_instances(vocabulary)
        found.append(batch.as_tensor_dict())
    return found
