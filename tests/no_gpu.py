"""Kernels compiled for a GPU that is not there."""


class Driver:
    """What Triton asks a GPU's driver, answered without one."""

    def __init__(self, capability):
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self):
        return self._target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


class CompiledOnly:
    """Compiles at a launch what a GPU would run, keeps its code, and goes on."""

    def __init__(self, function):
        import triton

        self.kernel = triton.jit(function)
        self.code = {}

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            compiled = self.kernel.warmup(*arguments, grid=grid, **constants)
            self.code[compiled.hash] = compiled.asm

        return launch
