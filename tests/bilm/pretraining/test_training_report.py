"""Log lines of a pretraining run."""

import logging

from elmo_plugin.bilm.pretraining import report
from elmo_plugin.bilm.pretraining.step import Step


def test_the_time_of_the_whole_run_is_logged_once(tmp_path, monkeypatch, caplog):
    seconds = iter([0, *range(0, 54, 6)])
    monkeypatch.setattr(report.time, "monotonic", lambda: next(seconds))
    caplog.set_level(logging.INFO)
    shown = report.Report(tmp_path, 20, 1000, shows=True, tensorboard=False)
    with shown.epoch(0, 0, 9):
        for number in range(1, 10):
            shown.step(Step(number, 1.0, 1.0, 0.0, 1), 0.1)
    (line,) = caplog.messages
    # Two steps took 12 seconds, and 997 are left.
    assert line == "the whole run takes 1:39:42 more at this speed"
