// Gradients of a linear layer, whose weight changes between two calls.
//
// A weight's gradient is a product with panels of the gradients of outputs, whose lanes are rows. Sums are taken in an order that depends on shapes alone.

#pragma once

#include "lstm.h"

namespace {

// Gradients of `count` rows, in panels with a column of outputs in each column: shape `(columns / 32, padded, 32)`. Behind the rows are zeros.
template <class Format>
struct GradientPanels {
  float* data;
  int64_t columns, count;

  int64_t panel() const { return panel_size<Format>(round_up(count, COLUMNS)); }
  int64_t size() const { return columns / COLUMNS * panel(); }
  Panels from(int64_t column) const { return {data + column / COLUMNS * panel(), panel()}; }
  void put(int64_t row, int64_t column, const float* values) const { Format::pack_row(values, data + column / COLUMNS * panel(), row); }

  void finish() const {
    const int64_t first = count / Format::PER_LANE * COLUMNS;
    for (int64_t column = 0; column < columns; column += COLUMNS) {
      float* own = data + column / COLUMNS * panel();
      memset(own + first, 0, (panel() - first) * sizeof(float));
    }
  }
};

// Packs the transpose of a weight of shape `(dim, output_dim)`, a number of rows at a time.
template <class Format>
void pack_transposed(const Team& team, const float* weight, int64_t output_dim, int64_t dim, float* panels) {
  constexpr int64_t ROWS = 2 * COLUMNS;
  team.each((dim + ROWS - 1) / ROWS, [&](int64_t item, int) {
    for (int64_t column = 0; column < output_dim; column += COLUMNS)
      for (int64_t row = item * ROWS; row < minimum((item + 1) * ROWS, dim); ++row)
        Format::pack_row(weight + row * output_dim + column, panels + column / COLUMNS * panel_size<Format>(dim), row);
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

// Scratch of `weight_gradient`, in floats.
template <class Format>
int64_t gradient_scratch(int threads, int64_t count) {
  return Rows<Format>::size(BLOCK_ROWS, round_up(count, COLUMNS)) + threads * BLOCK_ROWS * WIDE;
}

// Multiplies the transpose of a matrix, shape `(count, dim)`, by gradients. The result has shape `(dim, columns)`, or if `TRANSPOSED` `(columns, dim)`.
template <class Format, bool TRANSPOSED>
void weight_gradient(const Team& team, const GradientPanels<Format>& gradients, const float* matrix, int64_t dim, float* result, float* scratch) {
  const int64_t columns = gradients.columns, count = gradients.count;
  if (count == 0) memset(result, 0, columns * dim * sizeof(float));
  if (count == 0) return;
  const Rows<Format> rows{scratch, minimum(dim, BLOCK_ROWS), round_up(count, COLUMNS)};
  float* const all_products = scratch + Rows<Format>::size(rows.count, rows.dim);
  const int64_t at_once = columns_at_once(columns, team.threads);
  for (int64_t first = 0; first < dim; first += rows.count) {
    const int64_t size = minimum(dim - first, rows.count);
    load_transposed(team, matrix, dim, count, first, size, rows);
    team.ranges(columns / at_once, [&](int64_t begin, int64_t end, int thread) {
      [[maybe_unused]] const Tiles tiles;
      float* const products = all_products + thread * rows.count * WIDE;
      for (int64_t column = begin * at_once; column < end * at_once; column += at_once) {
        multiply_columns(rows, size, gradients.from(column), at_once, products, at_once);
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

// Gradients of a linear layer to compute; null stands for one that is not needed.
struct LinearGradients {
  float *inputs, *weight, *bias;
};

inline void add_columns(float* sums, const float* values) {
  for (int64_t j = 0; j < COLUMNS; ++j) sums[j] += values[j];
}

// Computes the gradients of a linear layer with a row-major weight of shape `(output_dim, dim)`. `output(row, column, values)` gives 32 gradients of
// outputs. `finish(row, column, values)` may change 32 gradients of inputs.
template <class Format, class Output, class Finish>
Status linear_gradients(const float* weight, int64_t output_dim, int64_t dim, const float* inputs, int64_t count, const LinearGradients& grad,
                        int threads, const Output& output, const Finish& finish) {
  const Team team(threads);
  GradientPanels<Format> gradients{nullptr, output_dim, count};
  const int64_t max_rows = minimum(count, BLOCK_ROWS), packed_size = weight_size<Format>(dim, output_dim);
  gradients.data = elmo_scratch(gradients.size() +
                                maximum(packed_size + Rows<Format>::size(max_rows, output_dim), gradient_scratch<Format>(team.threads, count)));
  if (gradients.data == nullptr) return NO_MEMORY;
  float* const packed = gradients.data + gradients.size();
  const Rows<Format> rows{packed + packed_size, max_rows, output_dim};
  gradients.finish();
  if (grad.bias) memset(grad.bias, 0, output_dim * sizeof(float));
  if (grad.inputs) pack_transposed<Format>(team, weight, dim, output_dim, packed);
  const int64_t at_once = columns_at_once(dim, team.threads);
  for (int64_t start = 0; start < count; start += max_rows) {
    const int64_t size = minimum(count - start, max_rows);
    team.each(output_dim / COLUMNS, [&](int64_t block, int) {
      const int64_t column = block * COLUMNS;
      float sums[COLUMNS] = {}, values[COLUMNS];
      for (int64_t row = 0; row < size; ++row) {
        output(start + row, column, values);
        gradients.put(start + row, column, values);
        rows.put(row, column, values);
        add_columns(sums, values);
      }
      if (grad.bias) add_columns(grad.bias + column, sums);
    });
    if (grad.inputs)
      team.ranges(dim / at_once, [&](int64_t begin, int64_t end, int) {
        [[maybe_unused]] const Tiles tiles;
        for (int64_t column = begin * at_once; column < end * at_once; column += at_once) {
          const int64_t panel = panel_size<Format>(output_dim);
          multiply_columns(rows, size, Panels{packed + column / COLUMNS * panel, panel}, at_once, grad.inputs + start * dim + column, dim);
          for (int64_t row = start; row < start + size; ++row)
            for (int64_t j = column; j < column + at_once; j += COLUMNS) finish(row, j, grad.inputs + row * dim + j);
        }
      });
  }
  if (grad.weight) weight_gradient<Format, true>(team, gradients, inputs, dim, grad.weight, packed);
  return DONE;
}

// Computes the gradients of a linear layer from those of its outputs, shape `(count, output_dim)`.
template <class Format>
Status linear_backward(const float* weight, int64_t dim, const float* inputs, const float* grad_outputs, const LinearGradients& grad, int64_t count,
                       int64_t output_dim, int threads) {
  const auto output = [&](int64_t row, int64_t column, float* values) {
    memcpy(values, grad_outputs + row * output_dim + column, COLUMNS * sizeof(float));
  };
  return linear_gradients<Format>(weight, output_dim, dim, inputs, count, grad, threads, output, [](int64_t, int64_t, float*) {});
}

}  // namespace
