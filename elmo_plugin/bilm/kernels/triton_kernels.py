"""
Triton kernels for the elementwise part of an LSTM step on a GPU, and of its gradient.

Program `(row, block)` computes `BLOCK` columns in one row of the cell. Tensors are contiguous, with
rows of `cell_size` columns, or of `4 * cell_size` for the gates `i, f, g, o`. Arithmetic is in
float32 whatever the tensors' dtypes. Only `lstm_fused.py` imports this file, because Triton is slow
to import.
"""

from typing import Any, no_type_check

try:
    import triton
    from triton import language as tl

    jit: Any = triton.jit
    # Marks a compile-time constant.
    constexpr: Any = tl.constexpr
except ImportError:  # PyTorch without CUDA does not install Triton
    jit = constexpr = None


@no_type_check
def forward_step(
    products, addend, cell, gated, activations, new_cell, clip, addend_stride, cell_size,
    KEEP: constexpr, BLOCK: constexpr,
):  # fmt: skip
    """
    Compute the elementwise part of a step. The pre-activations are `products + addend`;
    `addend_stride` is the row stride of `addend`, 0 for a bias that all rows share. The kernel
    overwrites `cell` with the clipped new cell states and `gated` with `sigmoid(o) tanh(c)`. With
    `KEEP`, it also writes `activations` (which may be `products`) and `new_cell`.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < cell_size
    here = row * cell_size + column
    first = row * 4 * cell_size + column
    added = row * addend_stride + column
    products, addend = products + first, addend + added
    i = tl.load(products, inside).to(tl.float32) + tl.load(addend, inside).to(tl.float32)
    products, addend = products + cell_size, addend + cell_size
    f = tl.load(products, inside).to(tl.float32) + tl.load(addend, inside).to(tl.float32)
    products, addend = products + cell_size, addend + cell_size
    g = tl.load(products, inside).to(tl.float32) + tl.load(addend, inside).to(tl.float32)
    products, addend = products + cell_size, addend + cell_size
    o = tl.load(products, inside).to(tl.float32) + tl.load(addend, inside).to(tl.float32)
    i = 1 / (1 + tl.exp(-i))
    f = 1 / (1 + tl.exp(-f))
    g = 2 / (1 + tl.exp(-2 * g)) - 1  # tanh
    o = 1 / (1 + tl.exp(-o))
    c = f * tl.load(cell + here, inside).to(tl.float32) + i * g
    # Comparisons, not minimum and maximum, which would lose a NaN.
    c = tl.where(c > clip, clip, c)
    c = tl.where(c < -clip, -clip, c)
    tl.store(cell + here, c, inside)
    tl.store(gated + here, o * (2 / (1 + tl.exp(-2 * c)) - 1), inside)
    if KEEP:
        tl.store(new_cell + here, c, inside)
        activations += first
        tl.store(activations, i, inside)
        tl.store(activations + cell_size, f, inside)
        tl.store(activations + 2 * cell_size, g, inside)
        tl.store(activations + 3 * cell_size, o, inside)


@no_type_check
def backward_step(
    grad_gated, activations, cell, previous_cell, grad_cell, grad_gates, clip, cell_size,
    BLOCK: constexpr,
):  # fmt: skip
    """
    Compute the gradient of a step's pre-activations from the gradients of `gated` and of the new
    cell states, and write it to `grad_gates`. `grad_cell` holds the gradient of the new cell states
    on entry, and that of the previous ones on return. It is zero where the new cell was clipped.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < cell_size
    here = row * cell_size + column
    first = row * 4 * cell_size + column
    activations += first
    i = tl.load(activations, inside).to(tl.float32)
    f = tl.load(activations + cell_size, inside).to(tl.float32)
    g = tl.load(activations + 2 * cell_size, inside).to(tl.float32)
    o = tl.load(activations + 3 * cell_size, inside).to(tl.float32)
    gated_grad = tl.load(grad_gated + here, inside).to(tl.float32)
    c = tl.load(cell + here, inside).to(tl.float32)
    previous = tl.load(previous_cell + here, inside).to(tl.float32)
    c_tanh = 2 / (1 + tl.exp(-2 * c)) - 1
    cell_grad = tl.load(grad_cell + here, inside).to(tl.float32)
    cell_grad += gated_grad * o * (1 - c_tanh * c_tanh)
    cell_grad = tl.where((c >= clip) | (c <= -clip), 0.0, cell_grad)
    tl.store(grad_cell + here, cell_grad * f, inside)
    grad_gates += first
    tl.store(grad_gates, cell_grad * g * i * (1 - i), inside)
    tl.store(grad_gates + cell_size, cell_grad * previous * f * (1 - f), inside)
    tl.store(grad_gates + 2 * cell_size, cell_grad * i * (1 - g * g), inside)
    tl.store(grad_gates + 3 * cell_size, gated_grad * c_tanh * o * (1 - o), inside)
