"""Exception that ends a run after Ctrl-C or SIGTERM, shown as one line."""

import signal
import sys
from typing import Any, Type

from allennlp.common.util import SigTermReceived

from elmo_plugin.bilm.files.stderr import stderr


def saved_interrupt(number: int, message: str) -> BaseException:
    """
    Return the exception that AllenNLP raises for a signal: a `KeyboardInterrupt` for SIGINT, else a
    `SigTermReceived`. Also replace `sys.excepthook`: if nothing catches the exception, the program
    prints only `message`, without a traceback.
    """
    stock_hook = sys.excepthook

    def print_message(kind: Type[BaseException], error: BaseException, traceback: Any) -> None:
        if issubclass(kind, (KeyboardInterrupt, SigTermReceived)) and str(error):
            print(error, file=stderr())
        else:
            stock_hook(kind, error, traceback)

    # Set the hook only now, because AllenNLP sets its own when training begins.
    sys.excepthook = print_message
    return (KeyboardInterrupt if number == signal.SIGINT else SigTermReceived)(message)
