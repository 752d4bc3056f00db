"""
Triton kernels for the elementwise part of an LSTM step on a GPU, for its gradient, and for the loss
of a sampled softmax.

Program `(row, block, direction)` of an LSTM step computes `BLOCK` columns in one row of the cell.
Rows are contiguous, with `cell_size` columns, or `4 * cell_size` for the gates `i, f, g, o`.
`..._stride` is the distance between the directions, in elements; all rows of products are
contiguous. Arithmetic is in float32 whatever the tensors' dtypes. Only `lstm_fused.py` imports this
file, because Triton is slow to import.
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
    products, addends, bias, cell, gated, left, activations, new_cell, clip, cell_size,
    TRAINS: constexpr, BLOCK: constexpr, addends_stride=0, gated_stride=0, activations_stride=0,
    cell_stride=0,
):  # fmt: skip
    """
    Compute the elementwise part of a step of each direction. Shapes: `products`, `addends` and
    `activations` `(num_directions, num_rows, 4 * cell_size)`, gates i, f, g, o; `bias`
    `(num_directions, 4 * cell_size)`; cell states and `gated` `(num_directions, num_rows,
    cell_size)`. Strides are of the first axis, in elements.

    The pre-activations are `products + addends + bias`. The new cell states c, from `-clip` to
    `clip`, go to `cell`, and `sigmoid(o) tanh(c)` to `gated`; a row whose number of steps in `left`
    is 0 keeps its c. With `TRAINS`, `cell` is only read, c of all rows goes to `new_cell`, and the
    gates after their activation to `activations`.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < cell_size
    direction = tl.program_id(2).to(tl.int64)
    products += (direction * tl.num_programs(0) + row) * 4 * cell_size + column
    here = row * cell_size + column
    first = row * 4 * cell_size + column
    cell += direction * cell_stride + here
    addends += direction * addends_stride + first
    bias += direction * 4 * cell_size + column
    i = tl.load(products, inside).to(tl.float32) + tl.load(addends, inside).to(tl.float32)
    products, addends = products + cell_size, addends + cell_size
    f = tl.load(products, inside).to(tl.float32) + tl.load(addends, inside).to(tl.float32)
    products, addends = products + cell_size, addends + cell_size
    g = tl.load(products, inside).to(tl.float32) + tl.load(addends, inside).to(tl.float32)
    products, addends = products + cell_size, addends + cell_size
    o = tl.load(products, inside).to(tl.float32) + tl.load(addends, inside).to(tl.float32)
    i += tl.load(bias, inside).to(tl.float32)
    f += tl.load(bias + cell_size, inside).to(tl.float32)
    g += tl.load(bias + 2 * cell_size, inside).to(tl.float32)
    o += tl.load(bias + 3 * cell_size, inside).to(tl.float32)
    i = 1 / (1 + tl.exp(-i))
    f = 1 / (1 + tl.exp(-f))
    g = 2 / (1 + tl.exp(-2 * g)) - 1  # tanh
    o = 1 / (1 + tl.exp(-o))
    previous = tl.load(cell, inside).to(tl.float32)
    c = f * previous + i * g
    # Comparisons, not minimum and maximum, which would lose a NaN.
    c = tl.where(c > clip, clip, c)
    c = tl.where(c < -clip, -clip, c)
    if not TRAINS:
        c = tl.where(tl.load(left + row) > 0, c, previous)
    tl.store(gated + direction * gated_stride + here, o * (2 / (1 + tl.exp(-2 * c)) - 1), inside)
    if not TRAINS:
        tl.store(cell, c, inside)
    else:
        tl.store(new_cell + direction * cell_stride + here, c, inside)
        activations += direction * activations_stride + first
        tl.store(activations, i, inside)
        tl.store(activations + cell_size, f, inside)
        tl.store(activations + 2 * cell_size, g, inside)
        tl.store(activations + 3 * cell_size, o, inside)


@no_type_check
def output_step(projected, hidden, outputs, left, clip, dim, outputs_stride, BLOCK: constexpr):
    """
    Clip a step's projections, and write them to `hidden` and `outputs`. Rows that have no steps in
    `left` keep their hidden states, and their outputs are 0.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < dim
    direction = tl.program_id(2).to(tl.int64)
    here = (direction * tl.num_programs(0) + row) * dim + column
    h = tl.load(projected + here, inside).to(tl.float32)
    h = tl.where(h > clip, clip, h)  # keeps a NaN
    h = tl.where(h < -clip, -clip, h)
    is_real = tl.load(left + row) > 0
    tl.store(hidden + here, h, inside & is_real)
    outputs += direction * outputs_stride + row * dim + column
    tl.store(outputs, tl.where(is_real, h, 0.0), inside)


@no_type_check
def backward_step(
    grad_gated, activations, cell, previous_cell, grad_cell, grad_gates, clip, cell_size,
    BLOCK: constexpr, activations_stride=0, cell_stride=0, grad_cell_stride=0, grad_gates_stride=0,
):  # fmt: skip
    """
    Compute the gradient of a step's pre-activations from the gradients of `gated` and of the new
    cell states, and write it to `grad_gates`. `grad_cell` holds the gradient of the new cell states
    on entry, and that of the previous ones on return. It is zero where the new cell was clipped.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < cell_size
    direction = tl.program_id(2).to(tl.int64)
    grad_gated += (direction * tl.num_programs(0) + row) * cell_size + column
    here = row * cell_size + column
    first = row * 4 * cell_size + column
    activations += direction * activations_stride + first
    i = tl.load(activations, inside).to(tl.float32)
    f = tl.load(activations + cell_size, inside).to(tl.float32)
    g = tl.load(activations + 2 * cell_size, inside).to(tl.float32)
    o = tl.load(activations + 3 * cell_size, inside).to(tl.float32)
    gated_grad = tl.load(grad_gated, inside).to(tl.float32)
    grad_cell += direction * grad_cell_stride + here
    here += direction * cell_stride
    c = tl.load(cell + here, inside).to(tl.float32)
    previous = tl.load(previous_cell + here, inside).to(tl.float32)
    c_tanh = 2 / (1 + tl.exp(-2 * c)) - 1
    cell_grad = tl.load(grad_cell, inside).to(tl.float32)
    cell_grad += gated_grad * o * (1 - c_tanh * c_tanh)
    cell_grad = tl.where((c >= clip) | (c <= -clip), 0.0, cell_grad)
    tl.store(grad_cell, cell_grad * f, inside)
    grad_gates += direction * grad_gates_stride + first
    tl.store(grad_gates, cell_grad * g * i * (1 - i), inside)
    tl.store(grad_gates + cell_size, cell_grad * previous * f * (1 - f), inside)
    tl.store(grad_gates + 2 * cell_size, cell_grad * i * (1 - g * g), inside)
    tl.store(grad_gates + 3 * cell_size, gated_grad * c_tanh * o * (1 - o), inside)


@no_type_check
def output_backward(
    grad_output, grad_hidden, hidden, grad_projected, grad_output_stride, hidden_stride,
    grad_projected_stride, clip, size, size_after, BLOCK: constexpr,
):  # fmt: skip
    """
    Compute the gradient with respect to a step's unclipped output, and write it to
    `grad_projected`.

    It is `grad_output + grad_hidden`, the sum of the gradients from the layer above and from the
    next step. It is zero where `hidden` was clipped. `size` is the number of elements in one
    direction; `grad_hidden` has the first `size_after` of them, as sentences end.
    """
    direction = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    value = tl.load(hidden + direction * hidden_stride + column, inside).to(tl.float32)
    gradient = tl.load(grad_output + direction * grad_output_stride + column, inside).to(tl.float32)
    after = column < size_after
    gradient += tl.load(grad_hidden + direction * size_after + column, after, 0.0).to(tl.float32)
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
