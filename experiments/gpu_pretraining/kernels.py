"""
Triton kernels for pretraining on a GPU: LSTM steps of both directions, and the sampled softmax.

The first axis of the LSTM's tensors is the direction; `..._stride` is its stride in elements. The
rows of one step and direction are contiguous, with `CELL_SIZE` columns, or `4 * CELL_SIZE` for the
gates `i, f, g, o`. Arithmetic is in float32 whatever the tensors' dtypes.
"""

import functools
from typing import Any, no_type_check

try:
    import triton
    from triton import language as tl

    # Marks a compile-time constant.
    constexpr: Any = tl.constexpr
except ImportError:  # PyTorch without CUDA does not install Triton
    triton = constexpr = None


@functools.cache
def kernel(name: str) -> Any:
    """Return this module's kernel called `name`. Triton compiles it at its first launch."""
    return triton.jit(globals()[name])


@no_type_check
def lstm_forward(
    state_products, input_products, bias, cell, new_cell, gated, activations, input_products_stride,
    cell_stride, gated_stride, activations_stride, clip, batch_size, CELL_SIZE: constexpr,
    BLOCK: constexpr,
):  # fmt: skip
    """
    Compute the elementwise part of an LSTM step.

    The pre-activations are `state_products + input_products + bias`. The kernel writes the clipped
    cell state `c` to `new_cell`, `sigmoid(o) tanh(c)` to `gated`, and the gates, after sigmoid or
    tanh, to `activations`.
    """
    row = tl.program_id(0)
    direction = row // batch_size
    row = (row - direction * batch_size).to(tl.int64)
    direction = direction.to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < CELL_SIZE
    here = row * CELL_SIZE + column
    first = row * 4 * CELL_SIZE + column
    sums = state_products + direction * batch_size * 4 * CELL_SIZE + first
    added = input_products + direction * input_products_stride + first
    bias += direction * 4 * CELL_SIZE + column
    i = tl.load(sums, inside).to(tl.float32) + tl.load(added, inside).to(tl.float32)
    i += tl.load(bias, inside)
    sums, added, bias = sums + CELL_SIZE, added + CELL_SIZE, bias + CELL_SIZE
    f = tl.load(sums, inside).to(tl.float32) + tl.load(added, inside).to(tl.float32)
    f += tl.load(bias, inside)
    sums, added, bias = sums + CELL_SIZE, added + CELL_SIZE, bias + CELL_SIZE
    g = tl.load(sums, inside).to(tl.float32) + tl.load(added, inside).to(tl.float32)
    g += tl.load(bias, inside)
    sums, added, bias = sums + CELL_SIZE, added + CELL_SIZE, bias + CELL_SIZE
    o = tl.load(sums, inside).to(tl.float32) + tl.load(added, inside).to(tl.float32)
    o += tl.load(bias, inside)
    i = 1 / (1 + tl.exp(-i))
    f = 1 / (1 + tl.exp(-f))
    g = 2 / (1 + tl.exp(-2 * g)) - 1  # tanh
    o = 1 / (1 + tl.exp(-o))
    c = f * tl.load(cell + direction * cell_stride + here, inside) + i * g
    # Comparisons, not minimum and maximum, which would lose a NaN.
    c = tl.where(c > clip, clip, c)
    c = tl.where(c < -clip, -clip, c)
    tl.store(new_cell + direction * cell_stride + here, c, inside)
    gated += direction * gated_stride + here
    tl.store(gated, o * (2 / (1 + tl.exp(-2 * c)) - 1), inside)
    activations += direction * activations_stride + first
    tl.store(activations, i, inside)
    tl.store(activations + CELL_SIZE, f, inside)
    tl.store(activations + 2 * CELL_SIZE, g, inside)
    tl.store(activations + 3 * CELL_SIZE, o, inside)


@no_type_check
def lstm_backward(
    grad_gated, activations, cell, previous_cell, grad_cell, grad_gates, activations_stride,
    cell_stride, grad_gates_stride, clip, batch_size, CELL_SIZE: constexpr, BLOCK: constexpr,
):  # fmt: skip
    """
    Compute the gradient with respect to a step's pre-activations, and write it to `grad_gates`.

    `grad_cell` holds the gradient of the new cell states on entry, and that of the previous ones on
    return. No gradient passes a clipped cell.
    """
    row = tl.program_id(0)
    direction = row // batch_size
    row = (row - direction * batch_size).to(tl.int64)
    direction = direction.to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < CELL_SIZE
    here = row * CELL_SIZE + column
    first = row * 4 * CELL_SIZE + column
    activations += direction * activations_stride + first
    i = tl.load(activations, inside).to(tl.float32)
    f = tl.load(activations + CELL_SIZE, inside).to(tl.float32)
    g = tl.load(activations + 2 * CELL_SIZE, inside).to(tl.float32)
    o = tl.load(activations + 3 * CELL_SIZE, inside).to(tl.float32)
    grad_gated += direction * batch_size * CELL_SIZE + here
    gated_grad = tl.load(grad_gated, inside).to(tl.float32)
    c = tl.load(cell + direction * cell_stride + here, inside)
    previous = tl.load(previous_cell + direction * cell_stride + here, inside)
    c_tanh = 2 / (1 + tl.exp(-2 * c)) - 1
    grad_cell += direction * batch_size * CELL_SIZE + here
    cell_grad = tl.load(grad_cell, inside) + gated_grad * o * (1 - c_tanh * c_tanh)
    cell_grad = tl.where((c >= clip) | (c <= -clip), 0.0, cell_grad)
    tl.store(grad_cell, cell_grad * f, inside)
    grad_gates += direction * grad_gates_stride + first
    tl.store(grad_gates, cell_grad * g * i * (1 - i), inside)
    tl.store(grad_gates + CELL_SIZE, cell_grad * previous * f * (1 - f), inside)
    tl.store(grad_gates + 2 * CELL_SIZE, cell_grad * i * (1 - g * g), inside)
    tl.store(grad_gates + 3 * CELL_SIZE, gated_grad * c_tanh * o * (1 - o), inside)


@no_type_check
def output_backward(
    grad_output, grad_hidden, hidden, grad_projected, grad_output_stride, hidden_stride,
    grad_projected_stride, clip, size, BLOCK: constexpr,
):  # fmt: skip
    """
    Compute the gradient with respect to a step's unclipped output, and write it to
    `grad_projected`.

    It is `grad_output + grad_hidden`, the sum of the gradients from the layer above and from the
    next step. It is zero where `hidden` was clipped. `size` is the number of elements in one
    direction.
    """
    direction = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    value = tl.load(hidden + direction * hidden_stride + column, inside).to(tl.float32)
    gradient = tl.load(grad_output + direction * grad_output_stride + column, inside).to(tl.float32)
    gradient += tl.load(grad_hidden + direction * size + column, inside).to(tl.float32)
    gradient = tl.where((value >= clip) | (value <= -clip), 0.0, gradient)
    tl.store(grad_projected + direction * grad_projected_stride + column, gradient, inside)


@no_type_check
def sampled_softmax(
    logits, bias, candidates, true_logits, targets, losses, grad_true, scale,
    NUM_CANDIDATES: constexpr, BLOCK: constexpr,
):  # fmt: skip
    """
    Compute the loss of one row, and the gradient of `scale` times the loss.

    The kernel overwrites `logits` with their gradient, and writes that of the true logit to
    `grad_true`. A candidate that equals the target is left out.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < NUM_CANDIDATES
    logits += row * NUM_CANDIDATES + column
    target = tl.load(targets + row)
    true = tl.load(true_logits + row)
    values = tl.load(logits, inside, other=0.0).to(tl.float32)
    values += tl.load(bias + column, inside, other=0.0)
    is_target = tl.load(candidates + column, inside, other=-1) == target
    values = tl.where(inside & (is_target == 0), values, -float("inf"))
    largest = tl.maximum(tl.max(values, 0), true)
    exponentials = tl.exp(values - largest)
    true_share = tl.exp(true - largest)
    total = tl.sum(exponentials, 0) + true_share
    tl.store(logits, exponentials * (scale / total), inside)
    tl.store(losses + row, tl.log(total) + largest - true)
    tl.store(grad_true + row, (true_share / total - 1.0) * scale)
