"""Build and run the model of a config on a few instances, and see how far it gets."""

import copy
import re
import traceback
from typing import Any, NamedTuple
from unittest import mock

import numpy
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.modules import TextFieldEmbedder
from torch.utils._python_dispatch import TorchDispatchMode


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


class Probe:
    """
    Builds models whose configs differ in widths alone, and runs them on batches.

    `baseline` is the outcome of the original model. A layer whose input had the width of its
    `get_input_dim()` there must get such an input in later runs too, else `run` ends in an error.
    """

    def __init__(self, model: Any, batches: list[dict[str, Any]], vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.consumed: set[str] = set()  # fields that text field embedders have read
        self.parameters: list[str] = []  # names in the model that was built last
        self._fits: dict[str, bool] = {}
        self._is_baseline = True
        self.baseline = self.run(model, batches)
        self._is_baseline = False

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

    def _watched(self, model: Model, batch: dict[str, Any]) -> Any:
        """See the calls of modules. Layers whose parameters are used elsewhere refuse hooks."""
        names = {module: name for name, module in model.named_modules()}
        stock = torch.nn.Module.__call__

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            if isinstance(module, TextFieldEmbedder):
                read = _addresses(given)
                self.consumed |= {name for name in batch if read & _addresses(batch[name])}
            elif hasattr(module, "get_input_dim") and module in names:
                self._compare(names[module], module, given)
            return stock(module, *args, **kwargs)

        return mock.patch.object(torch.nn.Module, "__call__", call)

    def _compare(self, name: str, module: Any, given: list[Any]) -> None:
        try:
            expected = module.get_input_dim()
        except NotImplementedError:
            return
        tensor = next(filter(torch.is_tensor, given), None)
        if tensor is None or not tensor.is_floating_point():
            return
        found = tensor.size(-1)
        if self._is_baseline:
            self._fits[name] = self._fits.get(name, True) and found == expected
        elif self._fits.get(name) and found != expected:
            raise ConfigurationError(f"{name} has an input of width {found}, expected {expected}")


def _addresses(value: Any) -> set[int]:
    """Return the addresses of the tensors in a value of lists and dictionaries."""
    if torch.is_tensor(value):
        return {value.data_ptr()}
    values = value.values() if isinstance(value, dict) else value
    return set().union(*map(_addresses, values)) if isinstance(value, (dict, list)) else set()


class _OperationCounter(TorchDispatchMode):
    """Counts tensor operations."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))
