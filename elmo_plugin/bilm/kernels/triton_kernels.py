"""
Triton kernels: all that is elementwise in one LSTM step on a GPU, and in its gradient.

Program `(row, block)` has one row and `BLOCK` columns of the cell. Tensors are contiguous, with
rows of `cell_size` columns, or of `4 * cell_size` for the gates `i, f, g, o`. Sums are in float32,
whatever is read and written. `lstm_fused.py` launches them; nothing else imports this file, since
it imports Triton.
"""

from typing import Any, no_type_check

try:
    import triton
    from triton import language as tl

    jit: Any = triton.jit
    # A number that a kernel is compiled for.
    constexpr: Any = tl.constexpr
except ImportError:  # PyTorch comes without it where it has no CUDA
    jit = constexpr = None


@no_type_check
def forward_step(
    products, addend, cell, gated, activations, new_cell, clip, addend_stride, cell_size,
    KEEP: constexpr, BLOCK: constexpr,
):  # fmt: skip
    """
    The gates' sums are `products + addend`; a row of `addend` is `addend_stride` behind the one
    before, 0 where all have the same. `cell` becomes the clipped new cell, `gated` is
    `sigmoid(o) tanh(c)`. With `KEEP`, `activations` (which may be `products`) and `new_cell` are
    written for `backward_step`.
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
    From the gradient of `gated` and, in `grad_cell`, that of the new cell: the gradient of the
    gates' sums, and in `grad_cell` that of the previous cell. Where the cell is at the clip
    none passes.
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
