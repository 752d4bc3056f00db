"""Under DistributedDataParallel every process keeps a state of its own."""

import torch

from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.process_group import in_processes
from tests.tiny_bilm import BATCHES, random_bilm

# Each process reads other sentences, and other numbers of them.
SHARES = [[BATCHES[0], BATCHES[1], BATCHES[2]], [BATCHES[2], BATCHES[4], BATCHES[0]]]


def alone(rank):
    """What one process computes by itself, and the state it is left with."""
    bilm = random_bilm()
    return _run(bilm, bilm, rank)


def _run(call, bilm, rank):
    outputs = []
    for batch in SHARES[rank]:
        output = call(batch_to_ids(batch))
        layers = output["activations"]
        (sum(layer.sum() for layer in layers)).backward()
        outputs.append(torch.stack(layers).detach())
    return outputs, bilm.carried


def _process(rank, size, folder):
    bilm = random_bilm(seed=1 + rank)  # DistributedDataParallel makes them the same
    parallel = torch.nn.parallel.DistributedDataParallel(bilm)
    outputs, carried = _run(parallel, bilm, rank)
    torch.save((outputs, [list(half) for half in carried]), f"{folder}/{rank}.pt")


def test_two_processes_equal_two_alone(tmp_path):
    in_processes(2, _process, tmp_path)
    states = []
    for rank in range(2):
        outputs, carried = torch.load(tmp_path / f"{rank}.pt")
        expected, expected_carried = alone(rank)
        for found, layers in zip(outputs, expected, strict=True):
            torch.testing.assert_close(found, layers, atol=1e-6, rtol=1e-5)
        for found, half in zip(carried, expected_carried, strict=True):
            torch.testing.assert_close(found, list(half), atol=1e-6, rtol=1e-5)
        states.append(carried[0][0])
    assert states[0].shape == states[1].shape
    assert (states[0] - states[1]).abs().max() > 1e-2
