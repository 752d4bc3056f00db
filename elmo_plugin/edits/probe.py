"""Build and run the model of a config on a few instances, and see how far it gets."""

import collections.abc
import copy
import inspect
import itertools
import re
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Union, get_args, get_origin
from unittest import mock

import numpy
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Field, Instance, Vocabulary
from allennlp.data.dataset_readers import MultiTaskDatasetReader
from allennlp.data.fields import ListField, MetadataField, TextField
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules import TextFieldEmbedder
from torch.utils._python_dispatch import TorchDispatchMode

MOST_INSTANCES, MOST_SECONDS, BATCH_SIZE = 1000, 4.0, 4
SENTENCE = "The old boat sank near the bank of the river ."
LABELS = ("O", "B-X", "I-X")  # of namespaces for which no data is there


class Outcome(NamedTuple):
    """
    How a run ended: its error or `None`, the number of tensor operations before the error, the
    lines of code where it was raised, and the integers in its messages.
    """

    error: Exception | None
    num_operations: int = 0
    lines: tuple[tuple[str, int], ...] = ()
    numbers: frozenset[int] = frozenset()

    def ends_like(self, other: "Outcome") -> bool:
        """
        Return whether both runs succeeded, or both failed on the same line with the same type of
        error. Then the widths are not the cause.
        """
        return type(self.error) is type(other.error) and self.lines == other.lines

    def is_behind(self, other: "Outcome") -> bool:
        """Return whether another run got further than this one."""
        if (self.lines, self.numbers) == (other.lines, other.numbers):
            return False
        if self.num_operations != other.num_operations:
            return self.num_operations < other.num_operations
        # No operation lies between two checks of a constructor.
        pairs = zip(self.lines, other.lines)
        before, after = next((pair for pair in pairs if pair[0] != pair[1]), (("", 0), ("", 0)))
        return before[0] == after[0] and before[1] < after[1]


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
    """Read the first instances of a data path, from each task of a multi-task reader."""
    if isinstance(reader, MultiTaskDatasetReader):
        return [one for task, inner in reader.readers.items() for one in read(inner, path[task])]
    end = time.monotonic() + MOST_SECONDS
    instances = itertools.takewhile(lambda _: time.monotonic() < end, reader.read(path))
    return list(itertools.islice(instances, MOST_INSTANCES))


def invent(reader: DatasetReader) -> Iterator[list[Instance]]:
    """
    Yield instances of an invented sentence, made by the reader's `text_to_instance`. The first has
    all arguments that can be invented, such as a label, the last only the required ones.

    # Raises

    `Exception`
        The reader's first error, if it makes no instance.
    """
    parts = [
        list(one.values()) if isinstance(one, dict) else [one] for one in vars(reader).values()
    ]
    wrapped = [one for part in parts for one in part if isinstance(one, DatasetReader)]
    if wrapped and not isinstance(reader, MultiTaskDatasetReader):  # such as sharded
        yield from invent(wrapped[0])
    elif wrapped:
        yield [
            _with_task(instance, task)
            for task, inner in zip(reader.readers, wrapped)  # type: ignore[attr-defined]
            for instance in next(invent(inner))
        ]
    else:
        found, error = False, None
        for extent in (2, 1, 0):
            try:
                instance = reader.text_to_instance(**_arguments(reader, extent))
                reader.apply_token_indexers(instance)
                list(text_fields([instance]))
            except Exception as problem:  # anything that a reader's code may raise
                error = error or problem
                continue
            found = True
            yield [instance]
        if error is not None and not found:
            raise error


def _with_task(instance: Instance, task: str) -> Instance:
    instance.add_field("task", MetadataField(task))
    return instance


def _arguments(reader: DatasetReader, extent: int) -> dict[str, Any]:
    """Return invented arguments; `extent` 0 leaves out those that have a default, 2 none."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(reader.text_to_instance).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = _invented(parameter.annotation, bool(found), extent)
        if parameter.default is parameter.empty or not found or (extent and value is not None):
            found[name] = value
    return found


def _invented(annotation: Any, is_label: bool, extent: int) -> Any:
    """Return a value of an annotated type, of which each list is as long as the sentence."""
    words, origin, arguments = SENTENCE.split(), get_origin(annotation), get_args(annotation)
    if origin is Union:  # rather words than a string
        best = max(arguments, key=lambda one: (len(get_args(one)), get_args(one) != (int,)))
        return _invented(best, is_label, extent)
    if annotation in (str, int):
        return SENTENCE if annotation is str else 0
    if origin is dict:
        return collections.defaultdict(list) if extent > 1 else None
    if origin not in (list, collections.abc.Sequence):
        return None
    if str in (arguments[0], *get_args(arguments[0])) and get_origin(arguments[0]) is not list:
        return [LABELS[0]] * len(words) if is_label else words
    if arguments[0] is int:
        return [int(number == 3) for number in range(len(words))]
    if arguments[0] is Token:
        places = itertools.accumulate((len(word) + 1 for word in words), initial=0)
        tokens = [Token(word, idx=place) for word, place in zip(words, places)]
        return tokens if extent > 1 or not is_label else None
    if get_args(arguments[0]) == (str,):
        return [words, words]
    if extent > 1 and get_args(arguments[0]) == (int,):
        return [[0] for _ in words]
    return None


def text_fields(instances: list[Instance]) -> Iterator[tuple[str, TextField]]:
    """Yield the text fields of instances with the names of the fields that hold them."""

    def inside(field: Field) -> Iterator[TextField]:
        if isinstance(field, TextField):
            yield field
        elif isinstance(field, ListField):
            for one in field.field_list:
                yield from inside(one)

    for instance in instances:
        for name, field in instance.fields.items():
            yield from ((name, one) for one in inside(field))


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


class Probe:
    """
    Builds and runs models whose configs differ in widths alone.

    `begin` runs the original model. `consumed` then holds the names of the fields that its text
    field embedders read. A layer whose input had the width of its `get_input_dim()` must get such
    an input in later runs too, else `run` ends in an error.

    # Parameters

    vocabulary : `Vocabulary`
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.consumed: set[str] = set()
        self.parameters: list[str] = []
        """Names of the parameters of the model that was built last."""
        self._keep: set[str] | None = None

    def begin(self, model: Any, batches: list[dict[str, Any]]) -> Outcome:
        """Run the original config's model, and note what later runs are compared with."""
        self._seen: set[str] = set()
        self._broken: set[str] = set()
        self._keep, self.consumed = None, set()
        outcome = self.run(model, batches)
        self._keep = self._seen - self._broken
        return outcome

    def run(self, config: Any, batches: list[dict[str, Any]]) -> Outcome:
        """Build a model, and run it on copies of the batches, as in training and in use."""
        torch.manual_seed(1)
        numpy.random.seed(1)  # noqa: NPY002
        counter = _OperationCounter()
        quick = mock.patch("torch.nn.init.orthogonal_", lambda tensor, gain=1: tensor.fill_(0.1))
        try:
            with counter, quick:
                params = Params(copy.deepcopy(config))
                model = Model.from_params(params, vocab=self.vocabulary)
                self.parameters = [name for name, _ in model.named_parameters()]
                for training in (True, False):
                    model.train(training)
                    for batch in copy.deepcopy(batches):
                        with self._watched(model, batch):
                            model(**batch)
        except Exception as error:  # anything that a model's code may raise
            lines = ((f.f_code.co_filename, n) for f, n in traceback.walk_tb(error.__traceback__))
            text, cause = "", error
            while cause is not None:
                text, cause = f"{text} {cause}", cause.__cause__  # type: ignore[assignment]
            numbers = frozenset(int(one) for one in re.findall(r"\d+", text) if len(one) < 8)
            return Outcome(error, counter.number, tuple(lines), numbers)
        return Outcome(None, counter.number)

    @contextmanager
    def _watched(self, model: Model, batch: dict[str, Any]) -> Iterator[None]:
        """See the calls of modules. Layers whose parameters are used elsewhere refuse hooks."""
        names = {module: name for name, module in model.named_modules()}
        code = torch.nn.Module.__call__.__code__

        def profile(frame: Any, event: str, _: Any) -> None:
            if event != "call" or frame.f_code is not code:
                return
            module, args, kwargs = (frame.f_locals[name] for name in ("self", "args", "kwargs"))
            if isinstance(module, TextFieldEmbedder):
                self._note(args, kwargs, batch)
            elif hasattr(module, "get_input_dim") and module in names:
                self._compare(names[module], module, args, kwargs)

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, args: Any, kwargs: Any, batch: dict[str, Any]) -> None:
        def tensors(value: Any) -> Iterator[int]:
            if torch.is_tensor(value):
                yield value.data_ptr()
            elif isinstance(value, dict):
                for one in value.values():
                    yield from tensors(one)

        read = {one for value in (*args, *kwargs.values()) for one in tensors(value)}
        self.consumed |= {name for name, value in batch.items() if read & set(tensors(value))}

    def _compare(self, name: str, module: Any, args: Any, kwargs: Any) -> None:
        try:
            expected = module.get_input_dim()
        except NotImplementedError:
            return
        given = [one for one in (*args, *kwargs.values()) if torch.is_tensor(one)]
        if not given or not given[0].is_floating_point():
            return
        found = given[0].size(-1)
        if self._keep is None:
            (self._seen if found == expected else self._broken).add(name)
        elif name in self._keep and found != expected:
            raise ConfigurationError(f"{name} has an input of width {found}, expected {expected}")


class _OperationCounter(TorchDispatchMode):
    """Counts tensor operations."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))
