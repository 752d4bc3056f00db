// The backward pass of an LSTM layer that is trained. Weights are row-major, and packed in each call.

#pragma once

#include "linear_training.h"

namespace {

// Memory for `5 * width + 2 * dim` columns of all rows, whose number is rounded up to a multiple of 32; the gradient of the outputs; and those to
// compute. Null stands for one that is not needed.
struct Gradients {
  float* memory;
  const float* outputs;
  float *inputs, *input, *state, *bias, *projection;
};

// Computes the gradients of 32 gates each from that of the gated output. `grad_cell` holds the gradient of the new cell, and on return that of the
// previous one. Also computes the gated output again, which is not saved.
__attribute__((noinline)) inline void gates_backward(const float* grad_gated, const float* activations, const float* cell, const float* previous,
                                                     float* grad_cell, float* grads, float* gated, float clip) {
#pragma omp simd
  for (int64_t j = 0; j < COLUMNS; ++j) {
    const float i = activations[j];
    const float f = activations[COLUMNS + j];
    const float g = activations[2 * COLUMNS + j];
    const float o = activations[3 * COLUMNS + j];
    const float c = cell[j];
    const float c_tanh = hyperbolic_tangent(c);
    float grad = __builtin_fmaf(grad_gated[j] * o, 1.0f - c_tanh * c_tanh, grad_cell[j]);
    grad = (c >= clip) | (c <= -clip) ? 0.0f : grad;
    grad_cell[j] = grad * f;
    grads[j] = grad * g * i * (1.0f - i);
    grads[COLUMNS + j] = grad * previous[j] * f * (1.0f - f);
    grads[2 * COLUMNS + j] = grad * i * (1.0f - g * g);
    grads[3 * COLUMNS + j] = grad_gated[j] * c_tanh * o * (1.0f - o);
    gated[j] = o * c_tanh;
  }
}

// Computes the gradients of a layer's inputs and weights from what the forward pass saved; the states are those before the first step.
template <class Format>
Status lstm_backward(const Layer& layer, const Tensors& saved, const Gradients& grad, const int64_t* sizes, int64_t steps, int64_t threads) {
  const Team team(threads);
  const int64_t width = layer.width, dim = layer.dim, input_dim = layer.input_dim, gates = GATES * width;
  const int64_t count = count_rows(sizes, steps), most = steps > 0 ? sizes[0] : 0;
  const float cell_clip = layer.cell_clip, projection_clip = layer.projection_clip;
  const TransposedPanels<Format> grad_gates{grad.memory, gates, count}, gated{grad.memory + grad_gates.size(), width, count};
  float *const grad_projected = gated.data + gated.size(), *const previous_outputs = grad_projected + count * dim;
  // Scratch: the transposed weights and what the steps need; after them, what the products of all rows need. The transpose of a weight is as large
  // as its gradient, or smaller, and lies in its memory until the gradient is computed.
  const int64_t input_size = grad.inputs && !grad.input ? weight_size<Format>(input_dim, gates) : 0;
  const int64_t state_size = grad.state ? 0 : weight_size<Format>(dim, gates);
  const int64_t projection_size = grad.projection ? 0 : weight_size<Format>(width, dim);
  const int64_t cell_size = round_up(most * width, LINE / 4), gates_size = Rows<Format>::size(most, gates);
  const int64_t projected_size = Rows<Format>::size(most, dim), stride = width + LINE / 4;
  const int64_t steps_size = cell_size + gates_size + projected_size + most * stride;
  float* const scratch =
      elmo_scratch(maximum(input_size + state_size + projection_size + steps_size, gradient_scratch<Format>(team.threads, count)));
  if (scratch == nullptr) return NO_MEMORY;
  float* const grad_cell = scratch + input_size + state_size + projection_size;
  const Rows<Format> gates_rows{grad_cell + cell_size, most, gates}, projected_rows{gates_rows.data + gates_size, most, dim};
  const Matrix grad_gated{projected_rows.data + projected_size, stride};
  const Blocks<Format> activations{saved.activations, count};
  const Blocks<Float32> cells{saved.cells, count};

  Weight<Format> input{};
  if (grad.inputs) input = packed_transpose<Format>(team, layer.input, input_dim, gates, grad.input ? grad.input : scratch);
  const auto state = packed_transpose<Format>(team, layer.state, dim, gates, grad.state ? grad.state : scratch + input_size);
  const auto projection =
      packed_transpose<Format>(team, layer.projection, width, dim, grad.projection ? grad.projection : scratch + input_size + state_size);
  memset(grad_cell, 0, most * width * sizeof(float));
  if (grad.bias) memset(grad.bias, 0, gates * sizeof(float));
  grad_gates.finish();
  gated.finish();
  for (int64_t step = steps, start = count; step >= 0; --step) {
    // The gradients of the gates, first of the step's outputs: what comes from the loss and from the step after.
    const int64_t after = step < steps ? sizes[step] : 0, size = step > 0 ? sizes[step - 1] : 0;
    multiply_all(team, projected_rows, after, projection, grad_gated, [&](int64_t column) {
      float sums[WIDE] = {}, own[WIDE], grads[WIDE], output[COLUMNS];
      for (int64_t row = 0; row < after; ++row) {
        const float* previous = step > 0 ? cells.at(start - size + row, column) : saved.cell + row * width + column;
        for (int64_t gate = 0; gate < GATES; ++gate) activations.get(start + row, gate * width + column, own + gate * COLUMNS);
        gates_backward(grad_gated.at(row, column), own, cells.at(start + row, column), previous, grad_cell + row * width + column, grads, output,
                       cell_clip);
        gated.put(start + row, column, output);
        for (int64_t gate = 0; gate < GATES; ++gate) {
          const float* values = grads + gate * COLUMNS;
          gates_rows.set(row, gate * width + column, values);
          grad_gates.put(start + row, gate * width + column, values);
          add_columns(sums + gate * COLUMNS, values);
        }
      }
      for (int64_t gate = 0; gate < GATES && grad.bias; ++gate) add_columns(grad.bias + gate * width + column, sums + gate * COLUMNS);
    });
    if (grad.inputs) multiply_all(team, gates_rows, after, input, {grad.inputs + start * input_dim, input_dim}, nothing);
    if (size == 0) continue;
    start -= size;
    const Matrix projected{grad_projected + start * dim, dim};
    multiply_all(team, gates_rows, after, state, projected, [&](int64_t column) {
      for (int64_t row = 0; row < size; ++row) {
        const int64_t place = (start + row) * dim + column;
        float* own = projected.at(row, column);
        for (int64_t j = 0; j < COLUMNS; ++j) {
          const float output = saved.outputs[place + j], sum = grad.outputs[place + j] + (row < after ? own[j] : 0.0f);
          own[j] = (output >= projection_clip) | (output <= -projection_clip) ? 0.0f : sum;
        }
        projected_rows.set(row, column, own);
      }
    });
  }

  if (grad.input) weight_gradient<Format, true>(team, grad_gates, saved.inputs, input_dim, grad.input, scratch);
  if (grad.projection) weight_gradient<Format, false>(team, gated, grad_projected, dim, grad.projection, scratch);
  if (!grad.state) return DONE;
  const float* before = saved.hidden;
  float* to = previous_outputs;
  for (int64_t step = 0; step < steps; ++step) {
    memcpy(to, before, sizes[step] * dim * sizeof(float));
    before = step == 0 ? saved.outputs : before + sizes[step - 1] * dim;
    to += sizes[step] * dim;
  }
  weight_gradient<Format, true>(team, grad_gates, previous_outputs, dim, grad.state, scratch);
  return DONE;
}

}  // namespace
