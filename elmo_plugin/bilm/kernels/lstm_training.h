// An LSTM layer that is trained: its forward pass, which saves what its backward pass needs.
//
// Weights are row-major, and packed anew in each call, since an optimizer changes them between two calls. Matrices of gates and cells are stored in
// blocks of 32 columns, shape `(width / 32, count, 32)`. Such a block is also a panel whose lanes are the rows: a weight's gradient is a product with it.

#pragma once

#include "lstm.h"

namespace {

// Rows and width of the part of a matrix that stays in the L2 cache while all panels are multiplied by it.
constexpr int64_t ROWS_AT_ONCE = 512, DEPTH = 512;

// Packs 32 rows of a weight, whose starts are `stride` floats apart, into a panel.
template <class Format>
void pack_weight_rows(const float* rows, int64_t stride, int64_t dim, float* panel) {
  if constexpr (Format::PER_LANE == 1) {
    pack_panel(rows, stride, dim, panel);
  } else {
    constexpr int64_t LANES_AT_ONCE = COLUMNS / Format::PER_LANE;
    alignas(LINE) float lanes[COLUMNS * LANES_AT_ONCE];
    for (int64_t k = 0; k < dim; k += COLUMNS, panel += LANES_AT_ONCE * COLUMNS) {
      for (int64_t row = 0; row < COLUMNS; ++row) Format::pack(rows + row * stride + k, COLUMNS, lanes + row * LANES_AT_ONCE, nullptr);
      pack_panel(lanes, LANES_AT_ONCE, LANES_AT_ONCE, panel);
    }
  }
}

// Packs 32 columns of `count` rows, whose starts are `stride` floats apart, into a panel.
template <class Format>
void pack_weight_columns(const float* rows, int64_t stride, int64_t count, float* panel) {
  for (int64_t k = 0; k < count; k += Format::PER_LANE, rows += Format::PER_LANE * stride, panel += COLUMNS) {
    if constexpr (Format::PER_LANE == 1)
      memcpy(panel, rows, COLUMNS * sizeof(float));
    else
      for (int64_t j = 0; j < COLUMNS; ++j)
        panel[j] = with_bits(static_cast<int32_t>(bfloat16_bits(rows[j]) | uint32_t{bfloat16_bits(rows[stride + j])} << 16));
  }
}

// Packs a weight of shape `(output_dim, dim)`.
template <class Format>
void pack_weight(const Team& team, const float* weight, int64_t output_dim, int64_t dim, float* panels) {
  team.each(output_dim / COLUMNS, [&](int64_t panel, int) {
    pack_weight_rows<Format>(weight + panel * COLUMNS * dim, dim, dim, panels + panel * panel_size<Format>(dim));
  });
}

// Packs the transpose of a weight of shape `(dim, output_dim)`, a number of rows at a time.
template <class Format>
void pack_transposed(const Team& team, const float* weight, int64_t output_dim, int64_t dim, float* panels) {
  constexpr int64_t ROWS = 2 * COLUMNS;
  team.each((dim + ROWS - 1) / ROWS, [&](int64_t item, int) {
    const int64_t start = item * ROWS, count = minimum(ROWS, dim - start);
    for (int64_t column = 0; column < output_dim; column += COLUMNS)
      pack_weight_columns<Format>(weight + start * output_dim + column, output_dim, count,
                                  panels + column / COLUMNS * panel_size<Format>(dim) + start / Format::PER_LANE * COLUMNS);
  });
}

// Writes the transpose of columns `first` to `first + size` of a matrix, shape `(count, dim)`, into `rows`, and packs them. What `rows` has more than
// `count` numbers is filled with zeros.
template <class Format>
void load_transposed(const Team& team, const float* matrix, int64_t dim, int64_t count, int64_t first, int64_t size, const Rows<Format>& rows) {
  team.each(size / LANES, [&](int64_t item, int) {
    const int64_t row = item * LANES, whole = count / LANES * LANES;
    const float* from = matrix + first + row;
    for (int64_t k = 0; k < whole; k += LANES) transpose(from + k * dim, dim, rows.at(row, k), rows.at(row + 1, k) - rows.at(row, k));
    for (int64_t own = row; own < row + LANES; ++own) {
      for (int64_t k = whole; k < rows.dim; ++k) *rows.at(own, k) = k < count ? matrix[k * dim + first + own] : 0.0f;
      rows.pack(own);
    }
  });
}

// Scratch of the two products below, in floats.
template <class Format>
int64_t scratch_size(int threads, int64_t count, int64_t padded) {
  const int64_t of_weight = Rows<Format>::size(BLOCK_ROWS, padded) + threads * ((Rows<Format>::PACKED ? panel_size<Format>(padded) * GATES : 0) + BLOCK_ROWS * WIDE);
  const int64_t of_inputs = Rows<Format>::size(minimum(count, ROWS_AT_ONCE), DEPTH) + threads * ROWS_AT_ONCE * COLUMNS;
  return maximum(of_weight, of_inputs);
}

// Multiplies the transpose of `rows`, shape `(count, dim)`, by `blocks` of `columns` columns and `padded` rows. The result has shape
// `(dim, columns)`, or if `TRANSPOSED` `(columns, dim)`.
template <class Format, bool TRANSPOSED>
void weight_gradient(const Team& team, const float* blocks, int64_t columns, int64_t padded, const float* matrix, int64_t dim, int64_t count,
                     float* result, float* scratch) {
  const Rows<Format> rows{scratch, minimum(dim, BLOCK_ROWS), padded};
  float* const all = scratch + Rows<Format>::size(rows.count, padded);
  constexpr bool PACKED = Rows<Format>::PACKED;
  const int64_t at_once = columns_at_once(columns, team.threads), panel = panel_size<Format>(padded), packed_size = PACKED ? panel * GATES : 0;
  for (int64_t first = 0; first < dim; first += rows.count) {
    const int64_t size = minimum(dim - first, rows.count);
    load_transposed(team, matrix, dim, count, first, size, rows);
    team.ranges(columns / at_once, [&](int64_t begin, int64_t end, int thread) {
      [[maybe_unused]] const Tiles tiles;
      float* const packed = all + thread * (packed_size + rows.count * WIDE);
      float* const products = packed + packed_size;
      for (int64_t column = begin * at_once; column < end * at_once; column += at_once) {
        const float* block = blocks + column * padded;
        if constexpr (PACKED)
          for (int64_t j = 0; j < at_once; j += COLUMNS)
            pack_weight_columns<Format>(block + j * padded, COLUMNS, padded, packed + j / COLUMNS * panel);
        multiply_columns(rows, size, Panels{PACKED ? packed : block, panel}, at_once, products, at_once);
        for (int64_t row = 0; row < size; row += TRANSPOSED ? LANES : 1) {
          const float* from = products + row * at_once;
          if constexpr (TRANSPOSED)
            for (int64_t j = 0; j < at_once; j += LANES) transpose(from + j, at_once, result + (column + j) * dim + first + row, dim);
          else
            memcpy(result + (first + row) * columns + column, from, at_once * sizeof(float));
        }
      }
    });
  }
}

// Multiplies `blocks` of `dim` columns and `padded` rows, of which there are `count`, by packed panels. `outputs` has shape `(count, output_dim)`.
template <class Format>
void multiply_by_panels(const Team& team, const float* blocks, int64_t dim, int64_t padded, int64_t count, const float* panels, int64_t output_dim,
                        float* outputs, float* scratch) {
  const int64_t max_rows = minimum(count, ROWS_AT_ONCE);
  float* const all_products = scratch + Rows<Format>::size(max_rows, DEPTH);
  for (int64_t start = 0; start < count; start += max_rows) {
    const int64_t size = minimum(count - start, max_rows);
    for (int64_t k = 0; k < dim; k += DEPTH) {
      const Rows<Format> rows{scratch, max_rows, minimum(DEPTH, dim - k)};
      team.each(size, [&](int64_t row, int) {
        for (int64_t j = 0; j < rows.dim; j += COLUMNS) rows.write(row, j, blocks + (k + j) * padded + (start + row) * COLUMNS, COLUMNS);
        rows.pack(row);
      });
      team.ranges(output_dim / COLUMNS, [&](int64_t begin, int64_t end, int thread) {
        [[maybe_unused]] const Tiles tiles;
        float* const products = all_products + thread * ROWS_AT_ONCE * COLUMNS;
        for (int64_t column = begin * COLUMNS; column < end * COLUMNS; column += COLUMNS) {
          const int64_t panel = panel_size<Format>(dim);
          multiply<1>(rows, size, Panels{panels + column / COLUMNS * panel + k / Format::PER_LANE * COLUMNS, panel}, products, COLUMNS);
          for (int64_t row = 0; row < size; ++row) {
            float* output = outputs + (start + row) * output_dim + column;
            for (int64_t j = 0; j < COLUMNS; ++j) output[j] = (k ? output[j] : 0.0f) + products[row * COLUMNS + j];
          }
        }
      });
    }
  }
}

// What the forward pass saves; `compiled_training.py` declares the same structures. `activations` and `cells` are stored in blocks.
struct Saved {
  const float *inputs, *hidden, *cell, *outputs, *activations, *cells;
};

// The gradient of the outputs, and those to compute; null stands for one that is not needed.
struct Gradients {
  const float* outputs;
  float *inputs, *input, *state, *bias, *projection;
};

// Runs `run_layer` for training.
template <class Format>
void train_forward(const Layer& layer, const float* inputs, float* hidden, float* cell, float* outputs, float* activations, float* cells,
                   const int64_t* sizes, int64_t steps, int threads) {
  const Team team(threads);
  const int64_t count = count_rows(sizes, steps), max_rows = steps > 0 ? sizes[0] : 0;
  const int64_t input_size = 4 * layer.width / COLUMNS * panel_size<Format>(layer.input_dim);
  const int64_t state_size = 4 * layer.width / COLUMNS * panel_size<Format>(layer.dim);
  const int64_t projection_size = layer.dim / COLUMNS * panel_size<Format>(layer.width);
  const int64_t inputs_size = Rows<Format>::size(minimum(count, BLOCK_ROWS), layer.input_dim);
  float* const input = elmo_scratch(input_size + state_size + projection_size +
                                    maximum(inputs_size, steps_scratch<Format>(layer, max_rows, team.threads)));
  float *const state = input + input_size, *const projection = state + state_size, *const scratch = projection + projection_size;
  pack_weight<Format>(team, layer.input, 4 * layer.width, layer.input_dim, input);
  pack_weight<Format>(team, layer.state, 4 * layer.width, layer.dim, state);
  pack_weight<Format>(team, layer.projection, layer.dim, layer.width, projection);
  const Layer packed{input,           layer.bias, state, projection, layer.width, layer.dim, layer.input_dim, 0, layer.cell_clip,
                     layer.projection_clip};
  multiply_inputs<Format>(team, packed, inputs, count, activations, scratch);
  run_steps<Format, true>(team, packed, activations, count, hidden, cell, outputs, sizes, steps, scratch, cells);
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
void train_backward(const Layer& layer, const Saved& saved, const Gradients& grad, const int64_t* sizes, int64_t steps, int threads) {
  const Team team(threads);
  const int64_t width = layer.width, dim = layer.dim, input_dim = layer.input_dim;
  const int64_t count = count_rows(sizes, steps), max_rows = steps > 0 ? sizes[0] : 0, padded = round_up(count, COLUMNS);
  // Scratch: matrices of all rows; the transposed weights; what the steps need, and after them the products of all rows.
  const int64_t state_size = dim / COLUMNS * panel_size<Format>(4 * width), projection_size = width / COLUMNS * panel_size<Format>(dim);
  const int64_t input_size = grad.inputs ? input_dim / COLUMNS * panel_size<Format>(4 * width) : 0;
  const int64_t gates_rows_size = Rows<Format>::size(max_rows, 4 * width), projected_rows_size = Rows<Format>::size(max_rows, dim);
  const int64_t steps_size = round_up(max_rows * width, LINE / 4) + gates_rows_size + projected_rows_size + team.threads * max_rows * WIDE;
  float* const grad_gates = elmo_scratch(padded * (5 * width + 2 * dim) + maximum(state_size + projection_size + steps_size,
                                                                                 input_size + scratch_size<Format>(team.threads, count, padded)));
  float* const gated = grad_gates + padded * 4 * width;
  float* const grad_projected = gated + padded * width;
  float* const previous_outputs = grad_projected + padded * dim;
  float* const state = previous_outputs + padded * dim;
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
                memcpy(gates_rows.at(row, gate * width + column), grads + gate * width * padded, COLUMNS * sizeof(float));
            }
        }
      });
      pack_rows(team, gates_rows, after);
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
          memcpy(projected_rows.at(row, column), own, state_columns * sizeof(float));
        }
      }
    });
    pack_rows(team, projected_rows, size);
  }

  // Products of all rows. Rows of zeros fill the last lanes.
  team.each(5 * width / COLUMNS, [&](int64_t block, int) {
    float* const own = grad_gates + block * padded * COLUMNS;
    memset(own + count * COLUMNS, 0, (padded - count) * COLUMNS * sizeof(float));
    if (!grad.bias || block >= 4 * width / COLUMNS) return;
    float sum[COLUMNS] = {};
    for (int64_t from = 0; from < count; from += BLOCK_ROWS) {
      float part[COLUMNS] = {};
      for (int64_t row = from; row < minimum(from + BLOCK_ROWS, count); ++row)
        for (int64_t j = 0; j < COLUMNS; ++j) part[j] += own[row * COLUMNS + j];
      for (int64_t j = 0; j < COLUMNS; ++j) sum[j] += part[j];
    }
    memcpy(grad.bias + block * COLUMNS, sum, sizeof sum);
  });
  float* const scratch = state + input_size;
  if (grad.inputs) {
    pack_transposed<Format>(team, layer.input, input_dim, 4 * width, state);
    multiply_by_panels<Format>(team, grad_gates, 4 * width, padded, count, state, input_dim, grad.inputs, scratch);
  }
  if (grad.input) weight_gradient<Format, true>(team, grad_gates, 4 * width, padded, saved.inputs, input_dim, count, grad.input, scratch);
  if (grad.projection) weight_gradient<Format, false>(team, gated, width, padded, grad_projected, dim, count, grad.projection, scratch);
  if (!grad.state) return;
  const float* before = saved.hidden;
  float* to = previous_outputs;
  for (int64_t step = 0; step < steps; ++step) {
    memcpy(to, before, sizes[step] * dim * sizeof(float));
    before = step == 0 ? saved.outputs : before + sizes[step - 1] * dim;
    to += sizes[step] * dim;
  }
  weight_gradient<Format, true>(team, grad_gates, 4 * width, padded, previous_outputs, dim, count, grad.state, scratch);
}

}  // namespace
