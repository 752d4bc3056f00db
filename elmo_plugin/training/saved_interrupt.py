"""Exception that ends a run after Ctrl-C or SIGTERM, shown as one line."""

import signal
import sys
from types import TracebackType
from typing import Optional, Type

from allennlp.common.util import SigTermReceived


def saved_interrupt(number: int, message: str) -> BaseException:
    """
    Return the exception that AllenNLP expects after the signal `number`, with `message`. If nothing
    catches it, the program prints the message alone, without a traceback.
    """
    stock_hook = sys.excepthook

    def print_message(
        kind: Type[BaseException], error: BaseException, traceback: Optional[TracebackType]
    ) -> None:
        if issubclass(kind, (KeyboardInterrupt, SigTermReceived)) and str(error):
            print(error, file=sys.stderr)
        else:
            stock_hook(kind, error, traceback)

    # Installed only now, because AllenNLP sets its own hook when training begins.
    sys.excepthook = print_message
    return (KeyboardInterrupt if number == signal.SIGINT else SigTermReceived)(message)
