"""`ScalarMix` that raises AllenNLP's exception for invalid arguments."""

import functools
from typing import Any, Callable

from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.model import scalar_mix


def _with_configuration_error(function: Callable) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    return call


class ScalarMix(scalar_mix.ScalarMix):
    """
    `elmo_plugin.bilm.model.scalar_mix.ScalarMix` that raises `ConfigurationError` instead of
    `ValueError`.
    """

    __init__ = _with_configuration_error(scalar_mix.ScalarMix.__init__)
    forward = _with_configuration_error(scalar_mix.ScalarMix.forward)
