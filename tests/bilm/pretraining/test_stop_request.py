"""Signals as requests to stop."""

import io
import logging
import os
import signal

from elmo_plugin.bilm.pretraining.stop_request import StopRequest


def test_a_signal_while_the_log_is_written_is_a_request_too(monkeypatch):
    """On a slow terminal, most come then. A buffer refuses to be written to from inside itself."""

    class Slow(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            if stop.number is None:
                os.kill(os.getpid(), signal.SIGTERM)
            return len(data)

    log = io.TextIOWrapper(io.BufferedWriter(Slow()), line_buffering=True)
    monkeypatch.setattr("sys.stderr", log)
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    try:
        with StopRequest() as stop:
            print("step 1", file=log)
        assert stop.number == signal.SIGTERM
    finally:
        logging.getLogger().removeHandler(handler)
