"""
Errors of `elmo_plugin.ScalarMix` for AllenNLP; the import of this module adds them to that class.
"""

import functools
from typing import Any, Callable

from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.model.scalar_mix import ScalarMix as ScalarMix


class _WrongValue(ConfigurationError, ValueError):
    """`ConfigurationError` that code without AllenNLP can catch."""


class _NoFile(ConfigurationError, FileNotFoundError):
    """`ConfigurationError` that code without AllenNLP can catch."""


def with_configuration_error(function: Callable) -> Any:
    """Decorate a function so that its `ValueError` is also AllenNLP's `ConfigurationError`."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except ConfigurationError:
            raise
        except FileNotFoundError as error:
            raise _NoFile(str(error)) from error
        except ValueError as error:
            raise _WrongValue(str(error)) from error

    return call


ScalarMix.__init__ = with_configuration_error(  # type: ignore[method-assign]
    ScalarMix.__init__
)
ScalarMix.forward = with_configuration_error(ScalarMix.forward)  # type: ignore[method-assign]
