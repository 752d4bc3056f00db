"""What the last digit of a vector depends on beside the numbers that go in."""

from importlib.metadata import version

import torch

from elmo_plugin.bilm.kernels import chooser, processors
from elmo_plugin.bilm.model.bilm import BiLm


def machine_of(bilm: BiLm) -> dict[str, str]:
    """
    # Parameters

    bilm : `BiLm`
        What is to run.

    # Returns

    `dict[str, str]`
        The kernel chosen for its products and the table's row that chose it, the processor with the
        instructions that PyTorch uses on it, and versions. Two processes of which all is the same
        give the same bits.
    """
    weight = max(bilm.lstm.parameters(), key=torch.numel)
    return {
        "kernel": type(chooser.linear_kernel(weight)).__name__,
        "kernels": processors.processor(),
        "steps": "fused" if chooser.fuses_steps(weight, None) else "plain",
        "processor": processors.model_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "pyarrow": version("pyarrow"),
    }
