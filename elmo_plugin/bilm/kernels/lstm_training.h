// An LSTM layer that is trained: its forward pass, which saves what its backward pass needs, and that. Weights are row-major, and packed in each call.

#pragma once

#include "linear_training.h"

namespace {

// What the forward pass saves; `compiled_training.py` declares the same structures. `activations` and `cells` are stored in blocks.
struct Saved {
  const float *inputs, *hidden, *cell, *outputs, *activations, *cells;
};

// Memory for `5 * width + 2 * dim` columns of all rows, or null for scratch; the gradient of the outputs; and those to compute. Null stands for one that is not needed.
struct Gradients {
  float* memory;
  const float* outputs;
  float *inputs, *input, *state, *bias, *projection;
};

// Runs `run_layer` for training.
template <class Format>
Status train_forward(const Layer& layer, const float* inputs, float* hidden, float* cell, float* outputs, float* activations, float* cells,
                   const int64_t* sizes, int64_t steps, int threads) {
  const Team team(threads);
  const int64_t count = count_rows(sizes, steps), max_rows = steps > 0 ? sizes[0] : 0;
  // Float32 input weights, which are large, are packed part by part.
  const int64_t input_size = Rows<Format>::PACKED ? 4 * layer.width / COLUMNS * panel_size<Format>(layer.input_dim) : 0;
  const int64_t state_size = 4 * layer.width / COLUMNS * panel_size<Format>(layer.dim);
  const int64_t projection_size = layer.dim / COLUMNS * panel_size<Format>(layer.width);
  const int64_t inputs_size = Rows<Format>::size(minimum(count, BLOCK_ROWS), layer.input_dim);
  float* const input = elmo_scratch(input_size + state_size + projection_size +
                                    maximum(inputs_size, steps_scratch<Format>(layer, max_rows, team.threads)));
  if (input == nullptr) return NO_MEMORY;
  float *const state = input + input_size, *const projection = state + state_size, *const scratch = projection + projection_size;
  if (input_size > 0) pack_weight<Format>(team, layer.input, 4 * layer.width, layer.input_dim, input);
  pack_weight<Format>(team, layer.state, 4 * layer.width, layer.dim, state);
  pack_weight<Format>(team, layer.projection, layer.dim, layer.width, projection);
  Layer packed = layer;
  packed.state = state;
  packed.projection = projection;
  if (input_size > 0) packed.input = input;
  packed.row_major = input_size == 0;
  multiply_inputs<Format>(team, packed, inputs, count, activations, scratch);
  run_steps<Format, true>(team, packed, activations, count, hidden, cell, outputs, sizes, steps, scratch, cells);
  return DONE;
}

// Computes the gradients of 32 gates each from that of the gated output, and writes them to `grads`. `grad_cell` holds the gradient of the new cell, and
// on return that of the previous one. Also computes the gated output again, which is not saved.
__attribute__((noinline)) void gates_backward(const float* grad_gated, const float* activations, int64_t gate_stride, const float* cell,
                                              const float* previous, float* grad_cell, float* grads, int64_t grad_stride, float* gated,
                                              float clip) {
#pragma omp simd
  for (int64_t j = 0; j < COLUMNS; ++j) {
    const float i = activations[j];
    const float f = activations[gate_stride + j];
    const float g = activations[2 * gate_stride + j];
    const float o = activations[3 * gate_stride + j];
    const float c = cell[j];
    const float c_tanh = hyperbolic_tangent(c);
    float grad = __builtin_fmaf(grad_gated[j] * o, 1.0f - c_tanh * c_tanh, grad_cell[j]);
    grad = (c >= clip) | (c <= -clip) ? 0.0f : grad;
    grad_cell[j] = grad * f;
    grads[j] = grad * g * i * (1.0f - i);
    grads[grad_stride + j] = grad * previous[j] * f * (1.0f - f);
    grads[2 * grad_stride + j] = grad * i * (1.0f - g * g);
    grads[3 * grad_stride + j] = grad_gated[j] * c_tanh * o * (1.0f - o);
    gated[j] = o * c_tanh;
  }
}

// Computes the gradients of a layer's inputs and weights from what the forward pass saved.
template <class Format>
Status train_backward(const Layer& layer, const Saved& saved, const Gradients& grad, const int64_t* sizes, int64_t steps, int threads) {
  const Team team(threads);
  const int64_t width = layer.width, dim = layer.dim, input_dim = layer.input_dim;
  const int64_t count = count_rows(sizes, steps), max_rows = steps > 0 ? sizes[0] : 0, padded = round_up(count, COLUMNS);
  // Scratch: the transposed weights and what the steps need; after them, what the products of all rows need.
  const int64_t state_size = dim / COLUMNS * panel_size<Format>(4 * width), projection_size = width / COLUMNS * panel_size<Format>(dim);
  const int64_t gates_rows_size = Rows<Format>::size(max_rows, 4 * width), projected_rows_size = Rows<Format>::size(max_rows, dim);
  const int64_t steps_size = round_up(max_rows * width, LINE / 4) + gates_rows_size + projected_rows_size + team.threads * max_rows * WIDE;
  const int64_t all_size = grad.memory ? 0 : padded * (5 * width + 2 * dim);
  float* const scratch = elmo_scratch(all_size + maximum(state_size + projection_size + steps_size,
                                                         linear_scratch<Format>(team.threads, count, 4 * width, input_dim)));
  if (scratch == nullptr) return NO_MEMORY;
  float *const state = scratch + all_size, *const grad_gates = grad.memory ? grad.memory : scratch;
  float* const gated = grad_gates + padded * 4 * width;
  float* const grad_projected = gated + padded * width;
  float* const previous_outputs = grad_projected + padded * dim;
  float* const projection = state + state_size;
  float* const grad_cell = projection + projection_size;
  const Rows<Format> gates_rows{grad_cell + round_up(max_rows * width, LINE / 4), max_rows, 4 * width};
  const Rows<Format> projected_rows{gates_rows.data + gates_rows_size, max_rows, dim};
  float* const all_products = projected_rows.data + projected_rows_size;

  pack_transposed<Format>(team, layer.state, dim, 4 * width, state);
  pack_transposed<Format>(team, layer.projection, width, dim, projection);
  memset(grad_cell, 0, max_rows * width * sizeof(float));
  const int64_t state_columns = columns_at_once(dim, team.threads), gate_columns = columns_at_once(width, team.threads);
  int64_t start = count;
  for (int64_t step = steps; step >= 0; --step) {
    // The gradients of the gates, first of the step's outputs: what comes from the loss and from the step after.
    const int64_t after = step < steps ? sizes[step] : 0, size = step > 0 ? sizes[step - 1] : 0;
    if (step < steps) {
      const float* previous = step > 0 ? saved.cells + (start - size) * COLUMNS : saved.cell;
      const int64_t previous_stride = step > 0 ? COLUMNS : width, previous_columns = step > 0 ? count : 1;
      team.ranges(width / gate_columns, [&](int64_t begin, int64_t end, int thread) {
        [[maybe_unused]] const Tiles tiles;
        float* const products = all_products + thread * max_rows * WIDE;
        for (int64_t first = begin * gate_columns; first < end * gate_columns; first += gate_columns) {
          const Panels panels{projection + first / COLUMNS * panel_size<Format>(dim), panel_size<Format>(dim)};
          multiply_columns(projected_rows, after, panels, gate_columns, products, gate_columns);
          for (int64_t column = first; column < first + gate_columns; column += COLUMNS)
            for (int64_t row = 0; row < after; ++row) {
              const int64_t place = (start + row) * COLUMNS;
              float* grads = grad_gates + column * padded + place;
              gates_backward(products + row * gate_columns + column - first, saved.activations + column * count + place, width * count,
                             saved.cells + column * count + place, previous + column * previous_columns + row * previous_stride,
                             grad_cell + row * width + column, grads, width * padded, gated + column * padded + place, layer.cell_clip);
              for (int64_t gate = 0; gate < 4; ++gate)
                gates_rows.put(row, gate * width + column, grads + gate * width * padded);
            }
        }
      });
    }
    if (step == 0) break;
    start -= size;
    team.ranges(dim / state_columns, [&](int64_t begin, int64_t end, int thread) {
      [[maybe_unused]] const Tiles tiles;
      float* const products = all_products + thread * max_rows * WIDE;
      for (int64_t column = begin * state_columns; column < end * state_columns; column += state_columns) {
        const int64_t panel = panel_size<Format>(4 * width);
        if (after > 0) multiply_columns(gates_rows, after, Panels{state + column / COLUMNS * panel, panel}, state_columns, products, state_columns);
        for (int64_t row = 0; row < size; ++row) {
          const int64_t place = (start + row) * dim + column;
          float* own = grad_projected + place;
          for (int64_t j = 0; j < state_columns; ++j) {
            const float output = saved.outputs[place + j], sum = grad.outputs[place + j] + (row < after ? products[row * state_columns + j] : 0.0f);
            own[j] = (output >= layer.projection_clip) | (output <= -layer.projection_clip) ? 0.0f : sum;
          }
          for (int64_t j = 0; j < state_columns; j += COLUMNS) projected_rows.put(row, column + j, own + j);
        }
      }
    });
  }

  const LinearGradients input{grad.inputs, grad.input, grad.bias};
  linear_gradients<Format>(team, grad_gates, saved.inputs, count, layer.input, 4 * width, input_dim, input, false, state);
  team.each(width / COLUMNS, [&](int64_t block, int) { finish_block(gated + block * padded * COLUMNS, count, nullptr); });
  if (grad.projection) weight_gradient<Format, false>(team, gated, width, padded, grad_projected, dim, count, grad.projection, state);
  if (!grad.state) return DONE;
  const float* before = saved.hidden;
  float* to = previous_outputs;
  for (int64_t step = 0; step < steps; ++step) {
    memcpy(to, before, sizes[step] * dim * sizeof(float));
    before = step == 0 ? saved.outputs : before + sizes[step - 1] * dim;
    to += sizes[step] * dim;
  }
  weight_gradient<Format, true>(team, grad_gates, 4 * width, padded, previous_outputs, dim, count, grad.state, state);
  return DONE;
}

}  // namespace
