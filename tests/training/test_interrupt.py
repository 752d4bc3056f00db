"""What an interrupt leaves: one line on the screen, and no hook on the model."""

import io
import pickle
import signal
import sys

import pytest
import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import SigTermReceived

from elmo_plugin.training.saved_interrupt import saved_interrupt


def test_a_model_just_trained_can_be_pickled_and_saved_whole(config, tmp_path):
    for resumed in (False, True):
        params = Params(config).duplicate()
        loop = TrainModel.from_params(
            params=params, serialization_dir=str(tmp_path), local_rank=0, batch_weight_key=""
        )
        loop.run()
        assert not loop.model._forward_pre_hooks
        if not resumed:  # AllenNLP's sanity check leaves a hook where no epoch was trained
            pickle.dumps(loop.model)
            torch.save(loop.model, io.BytesIO())


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SigTermReceived)]
)
def test_an_interrupt_that_says_what_was_saved_is_one_line(number, kind, capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    error = saved_interrupt(number, "Stopped, and saved")
    assert type(error) is kind
    sys.excepthook(kind, error, None)
    assert capsys.readouterr().err == "Stopped, and saved\n"
    sys.excepthook(kind, kind(), None)  # nothing is known of this one
    assert kind.__name__ in capsys.readouterr().err
