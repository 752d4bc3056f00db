"""What the last digit of a vector depends on beside the numbers that go in."""

from importlib.metadata import version

import torch

from elmo_plugin.bilm.kernels import chooser, processors
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection


def machine_of(bilm: BiLm) -> dict[str, str]:
    """
    # Parameters

    bilm : `BiLm`
        What is to run.

    # Returns

    `dict[str, str]`
        The kernels chosen for its products and steps, the table's row that chose them, the
        processor with the instructions that PyTorch uses on it, and versions. Two processes of
        which all is the same give the same bits.
    """
    weight = max(bilm.lstm.parameters(), key=torch.numel)
    layer = next(one for one in bilm.lstm.modules() if isinstance(one, LstmCellWithProjection))
    return {
        "kernel": type(chooser.linear_kernel(weight)).__name__,
        "kernels": processors.processor(),
        "steps": chooser.steps_by(layer.weights),
        "processor": processors.model_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "pyarrow": version("pyarrow"),
    }
