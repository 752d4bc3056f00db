"""
A GPU that is not there: tensors that say they are on `cuda:0` and are computed on the CPU. What
mixes them with the CPU's own, as a GPU would not let it, is an error.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from elmo_plugin.bilm.kernels import plain, torch_private
from elmo_plugin.bilm.kernels.gpu import cuda_graph, lstm_fused, triton_kernels
from tests.interpreted_kernels import let_reductions_run

GPU = torch.device("cuda", 0)
aten = torch.ops.aten
# These take tensors of both devices.
COPIES = (aten.copy_, aten._to_copy)
# For these the processor waits until the GPU is done.
WAITED_FOR = (
    aten._local_scalar_dense, aten.nonzero, aten._unique2, aten.unique_dim, aten.equal,
    aten.masked_select,
)  # fmt: skip
# A GPU's tensor takes the CPU's indices, not the other way round.
INDEXED = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)


class GpuTensor(torch.Tensor):
    """`values`, a tensor of the CPU, as one of the GPU."""

    @staticmethod
    def __new__(cls, values, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=GPU,
            requires_grad=requires_grad,
        )

    def __init__(self, values, requires_grad=False):
        self.values = values

    def __tensor_flatten__(self):
        """With this, `module.to("cuda:0")` takes such tensors as parameters."""
        return ["values"], None

    @staticmethod
    def __tensor_unflatten__(parts, meta, outer_size, outer_stride):
        return GpuTensor(parts["values"])

    def __repr__(self):
        return f"GpuTensor({self.values})"

    def tolist(self):
        """PyTorch's own does not take such tensors."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, operator, types, arguments=(), keywords=None):
        return run(operator, arguments, keywords or {})


class Emulation(TorchDispatchMode):
    """
    Makes new tensors where they are asked for. Notes what a GPU would be given to do, views and
    uninitialised memory aside, and what the processor would have to wait for.
    """

    def __init__(self):
        super().__init__()
        self.started = []
        self.waits = []
        # Names of Triton kernels, in order.
        self.launched = []
        # While a graph is recorded: what repeats it.
        self.tape = None

    def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
        result = run(operator, arguments, keywords or {})
        kind = operator.overloadpacket
        if self.tape is not None:
            self.tape.append(lambda: repeat(result, operator, arguments, keywords or {}))
        if not operator.is_view and "empty" not in str(kind):
            self.started.append(str(kind))
        if arguments and isinstance(arguments[0], GpuTensor):
            to_cpu = kind is aten._to_copy and not isinstance(result, GpuTensor)
            if kind in WAITED_FOR or to_cpu:
                if self.tape is not None:
                    raise RuntimeError(f"{kind} while a graph is recorded")
                self.waits.append(str(kind))
        return result

    def record(self, work, pool=None):
        """As `cuda_graph.record`: operations are repeated on the tensors that they had."""
        work()
        self.tape = tape = []
        try:
            work()
        finally:
            self.tape = None

        def replay():
            with _disable_current_modes():
                for repeated in tape:
                    repeated()

        return replay

    def run_kernels(self, monkeypatch, kernels=None):
        """Have Triton's interpreter run the kernels, or `kernels`, functions by name."""
        let_reductions_run(monkeypatch)
        monkeypatch.setattr(lstm_fused, "works", lambda device, *_: device.type == "cuda")
        monkeypatch.setattr(lstm_fused, "kernel", lambda name: Kernel(name, self, kernels))


class Kernel:
    """A Triton kernel, run by its interpreter or a function in its place."""

    def __init__(self, name, emulation, kernels):
        self.name, self.emulation, self.kernels = name, emulation, kernels

    def __getitem__(self, grid):
        from triton.runtime.interpreter import InterpretedFunction

        if self.kernels is None:
            function = InterpretedFunction(getattr(triton_kernels, self.name))[grid]
        else:
            function = self.kernels[self.name]

        def launch(*arguments, **constants):
            def launched():
                function(*unwrapped(arguments), **unwrapped(constants))

            with _disable_current_modes():
                launched()
            self.emulation.launched.append(self.name)
            if self.emulation.tape is not None:
                self.emulation.tape.append(launched)

        return launch


def repeat(result, operator, arguments, keywords):
    """Run an operator again, and write its result where the first one is."""
    for old, new in zip(tree_leaves(result), tree_leaves(run(operator, arguments, keywords))):
        if new is not old:
            old.values.copy_(new.values)


def run(operator, arguments, keywords):
    kind = operator.overloadpacket
    tensors = []
    checked = arguments, keywords
    if kind in INDEXED and isinstance(arguments[0], GpuTensor):
        checked = arguments[0], arguments[2:], keywords
    tree_map_only(torch.Tensor, tensors.append, checked)
    # The CPU's scalars may stand beside any tensor.
    devices = {isinstance(one, GpuTensor) for one in tensors if one.dim()}
    if len(devices) == 2 and kind not in COPIES:
        raise RuntimeError(f"{operator} mixes tensors of the CPU and the GPU")
    on_gpu = any(isinstance(one, GpuTensor) for one in tensors)
    if kind is aten.copy_:
        on_gpu = isinstance(arguments[0], GpuTensor)
    if keywords.get("device") is not None:
        on_gpu = torch.device(keywords["device"]).type == "cuda"
        keywords = {**keywords, "device": "cpu"}
    values = operator(*unwrapped(arguments), **unwrapped(keywords))
    if not on_gpu:
        return values
    # What was changed in place stays the object it was.
    known = {id(one.values): one for one in tensors if isinstance(one, GpuTensor)}
    return tree_map_only(
        torch.Tensor, lambda one: known[id(one)] if id(one) in known else GpuTensor(one), values
    )


def unwrapped(tree):
    """The CPU's tensors for the GPU's, wherever they are in it."""
    return tree_map_only(GpuTensor, lambda one: one.values, tree)


@contextmanager
def emulated_gpu(monkeypatch):
    """
    In the block, `device="cuda:0"` gives such tensors; without gradients, since autograd does not
    start. What it does to PyTorch is what PyTorch's own fake tensors do.
    """
    # Autograd counts devices when it first runs; had it seen one, no test could fork any more.
    torch.ones((), requires_grad=True).backward()
    torch._C._ensureCUDADeviceGuardSet()
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(plain, "TENSORS", plain.TENSORS | {GpuTensor})
    monkeypatch.setattr(torch_private, "modes_are_active", lambda: False)  # it is the device
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "emulated")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    # Tensors of a class of our own cannot be made in inference mode.
    monkeypatch.setattr(torch, "inference_mode", lambda mode=True: torch.no_grad())
    for change in ("_exchange_device", "_maybe_exchange_device"):
        monkeypatch.setattr(torch.cuda, change, lambda index: index)
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with Emulation() as emulation:
            monkeypatch.setattr(cuda_graph, "record", emulation.record)
            yield emulation
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
