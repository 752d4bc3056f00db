// Linear layers: their outputs and gradients. A weight that is trained changes between two calls.
//
// A weight's gradient is a product with panels of the gradients of outputs, whose lanes are rows. Sums are taken in an order that depends on shapes alone.

#pragma once

#include "lstm.h"

namespace {

// Linear layer, or a highway layer. `bias` may be null.
struct Affine {
  const float *weight, *bias;
  int64_t output_dim, dim, row_major;

  template <class Format>
  Weight<Format> as() const {
    return {weight, output_dim, dim, row_major != 0};
  }
};

// Computes `inputs W^T + bias`, shape `(count, output_dim)`.
template <class Format>
Status linear(const Affine& layer, const float* inputs, float* outputs, float*, int64_t count, int64_t threads) {
  const Team team(threads);
  const auto given = layer.as<Format>();
  float* const memory = elmo_scratch(given.packed_size() + Rows<Format>::size(minimum(count, BLOCK_ROWS), layer.dim));
  if (memory == nullptr) return NO_MEMORY;
  const auto weight = given.readable(team, memory);
  over_rows<Format>(team, inputs, count, layer.dim, memory + given.packed_size(), [&](const Rows<Format>& rows, int64_t size, int64_t start) {
    const Matrix to{outputs + start * layer.output_dim, layer.output_dim};
    multiply_all(team, rows, size, weight, to, [&](int64_t column) {
      for (int64_t row = 0; row < size; ++row)
        for (int64_t j = 0; j < COLUMNS; ++j) to.at(row, column)[j] += layer.bias ? layer.bias[column + j] : 0.0f;
    });
  });
  return DONE;
}

// Panels of the transpose of a matrix, shape `(count, columns)`, that is written row by row. Behind the rows are zeros.
template <class Format>
struct TransposedPanels {
  float* data;
  int64_t columns, count;

  Weight<Format> weight() const { return {data, columns, round_up(count, COLUMNS)}; }
  int64_t size() const { return weight_size<Format>(columns, round_up(count, COLUMNS)); }
  float* panel(int64_t column) const { return data + column / COLUMNS * panel_size<Format>(round_up(count, COLUMNS)); }
  void put(int64_t row, int64_t column, const float* values) const { Format::pack_row(values, panel(column), row); }

  void finish() const {
    const int64_t first = count / Format::PER_LANE * COLUMNS;
    for (int64_t column = 0; column < columns; column += COLUMNS)
      memset(panel(column) + first, 0, (panel(COLUMNS) - data - first) * sizeof(float));
  }
};

// Packs the transpose of a weight of shape `(dim, output_dim)`, a number of rows at a time.
template <class Format>
Weight<Format> packed_transpose(const Team& team, const float* weight, int64_t output_dim, int64_t dim, float* memory) {
  constexpr int64_t ROWS = 2 * COLUMNS;
  const TransposedPanels<Format> panels{memory, output_dim, dim};
  team.each((dim + ROWS - 1) / ROWS, [&](int64_t item, int) {
    for (int64_t column = 0; column < output_dim; column += COLUMNS)
      for (int64_t row = item * ROWS; row < minimum((item + 1) * ROWS, dim); ++row) panels.put(row, column, weight + row * output_dim + column);
  });
  return panels.weight();
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
void weight_gradient(const Team& team, const TransposedPanels<Format>& gradients, const float* matrix, int64_t dim, float* result, float* scratch) {
  const int64_t columns = gradients.columns, at_once = columns_at_once(columns, team.threads);
  if (gradients.count == 0) memset(result, 0, columns * dim * sizeof(float));
  if (gradients.count == 0) return;
  const auto weight = gradients.weight();
  const Rows<Format> rows{scratch, minimum(dim, BLOCK_ROWS), weight.dim};
  float* const all_products = scratch + Rows<Format>::size(rows.count, rows.dim);
  for (int64_t first = 0; first < dim; first += rows.count) {
    const int64_t size = minimum(dim - first, rows.count);
    load_transposed(team, matrix, dim, gradients.count, first, size, rows);
    if constexpr (!TRANSPOSED) {
      multiply_all(team, rows, size, weight, {result + first * columns, columns}, nothing);
    } else {
      each_column(team, columns, at_once, [&](int64_t column, int thread) {
        float* const products = all_products + thread * rows.count * WIDE;
        weight.multiply_columns(rows, size, column, at_once, products, at_once);
        for (int64_t row = 0; row < size; row += LANES)
          for (int64_t j = 0; j < at_once; j += LANES)
            transpose(products + row * at_once + j, at_once, result + (column + j) * dim + first + row, dim);
      });
    }
  }
}

// Gradients of a linear layer to compute; null stands for one that is not needed.
struct LinearGradients {
  float *inputs, *weight, *bias;
};

inline void add_columns(float* sums, const float* values) {
  for (int64_t j = 0; j < COLUMNS; ++j) sums[j] += values[j];
}

// Computes the gradients of a layer with a row-major weight. `output(row, column, values)` gives 32 gradients of outputs. `finish(row, column, values)`
// may change 32 gradients of inputs. Before each block of rows, `prepare(team, start, memory)` is called, with `memory` for `more` floats.
template <class Format, class Output, class Finish, class Prepare>
Status linear_gradients(const Affine& layer, const float* inputs, int64_t count, const LinearGradients& grad, int64_t threads, const Output& output,
                        const Finish& finish, int64_t more, const Prepare& prepare) {
  const Team team(threads);
  const int64_t dim = layer.dim, output_dim = layer.output_dim, max_rows = minimum(count, BLOCK_ROWS);
  TransposedPanels<Format> gradients{nullptr, output_dim, count};
  const int64_t packed_size = weight_size<Format>(dim, output_dim), rows_size = Rows<Format>::size(max_rows, output_dim);
  float* const memory = elmo_scratch(more + gradients.size() + maximum(packed_size + rows_size, gradient_scratch<Format>(team.threads, count)));
  if (memory == nullptr) return NO_MEMORY;
  gradients.data = memory + more;
  float* const packed = gradients.data + gradients.size();
  const Rows<Format> rows{packed + packed_size, max_rows, output_dim};
  gradients.finish();
  if (grad.bias) memset(grad.bias, 0, output_dim * sizeof(float));
  if (grad.inputs) packed_transpose<Format>(team, layer.weight, dim, output_dim, packed);
  for (int64_t start = 0; start < count; start += max_rows) {
    const int64_t size = minimum(count - start, max_rows);
    prepare(team, start, memory);
    team.each(output_dim / COLUMNS, [&](int64_t block, int) {
      const int64_t column = block * COLUMNS;
      float sums[COLUMNS] = {}, values[COLUMNS];
      for (int64_t row = 0; row < size; ++row) {
        output(start + row, column, values);
        gradients.put(start + row, column, values);
        rows.set(row, column, values);
        add_columns(sums, values);
      }
      if (grad.bias) add_columns(grad.bias + column, sums);
    });
    const Matrix to{grad.inputs + start * dim, dim};
    const auto finish_rows = [&](int64_t column) {
      for (int64_t row = 0; row < size; ++row) finish(start + row, column, to.at(row, column));
    };
    if (grad.inputs) multiply_all(team, rows, size, Weight<Format>{packed, dim, output_dim}, to, finish_rows);
  }
  if (grad.weight) weight_gradient<Format, true>(team, gradients, inputs, dim, grad.weight, packed);
  return DONE;
}

constexpr auto unchanged = [](int64_t, int64_t, float*) {};
constexpr auto no_preparation = [](const Team&, int64_t, float*) {};

// Computes the gradients of a linear layer from those of its outputs, shape `(count, output_dim)`.
template <class Format>
Status linear_backward(const Affine& layer, const float* inputs, const float*, const float* grad_outputs, const LinearGradients& grad, int64_t count,
                       int64_t threads) {
  const auto output = [&](int64_t row, int64_t column, float* values) {
    memcpy(values, grad_outputs + row * layer.output_dim + column, COLUMNS * sizeof(float));
  };
  return linear_gradients<Format>(layer, inputs, count, grad, threads, output, unchanged, 0, no_preparation);
}

// --- log-sum-exp of a linear layer's outputs, the logits; they are not stored, and the backward pass computes them again ---

// A row leaves out its target, and columns with a negative id.
struct Logits {
  Affine layer;
  const float* inputs;
  const int32_t *ids, *targets;
  int64_t count;

  int64_t max_rows() const { return minimum(count, BLOCK_ROWS); }
};

// Memory of `logits_of_block`, in floats. Blocks have one row more than is used, so that the logits of a row fall into different cache sets.
template <class Format>
int64_t logits_size(const Logits& all) {
  const int64_t dim = all.layer.dim, output_dim = all.layer.output_dim;
  return weight_size<Format>(output_dim, dim) + Rows<Format>::size(all.max_rows(), dim) + output_dim * (all.max_rows() + 1);
}

// Computes the logits of a block of rows; what a row leaves out is minus infinity. The block at 0 comes first: it packs the weight.
template <class Format>
Matrix logits_of_block(const Team& team, const Logits& all, int64_t start, float* memory) {
  const int64_t dim = all.layer.dim, output_dim = all.layer.output_dim;
  const Rows<Format> rows{memory + weight_size<Format>(output_dim, dim), all.max_rows(), dim};
  const Matrix logits{rows.data + Rows<Format>::size(rows.count, dim), COLUMNS, rows.count + 1};
  const int64_t size = minimum(all.count - start, rows.count);
  if (start == 0) all.layer.as<Format>().packed(team, memory);
  load_rows(team, all.inputs + start * dim, rows, size);
  multiply_all(team, rows, size, Weight<Format>{memory, output_dim, dim}, logits, [&](int64_t column) {
    for (int64_t row = 0; row < size; ++row) {
      const int32_t target = all.targets[start + row];
      float* own = logits.at(row, column);
#pragma omp simd
      for (int64_t j = 0; j < COLUMNS; ++j) {
        const int32_t id = all.ids[column + j];
        const float logit = own[j] + all.layer.bias[column + j];
        own[j] = (id < 0) | (id == target) ? -__builtin_inff() : logit;
      }
    }
  });
  return logits;
}

// Returns `e^(logit - norm)`, and 0 for a logit that is left out.
inline float share_of(float logit, float norm) {
  const float x = logit - norm;
  return (x < -87.0f) | (logit == -__builtin_inff()) ? 0.0f : exponential(x);
}

// Computes, for each row, its largest logit and the sum of `e^(logit - largest)`.
template <class Format>
Status log_sum_exp(const Logits& all, float* largest, float* sums, int64_t threads) {
  const Team team(threads);
  const int64_t output_dim = all.layer.output_dim;
  float* const memory = elmo_scratch(logits_size<Format>(all));
  if (memory == nullptr) return NO_MEMORY;
  for (int64_t start = 0; start < all.count; start += all.max_rows()) {
    const Matrix logits = logits_of_block<Format>(team, all, start, memory);
    team.each(minimum(all.count - start, all.max_rows()), [&](int64_t row, int) {
      float most[COLUMNS], sum[COLUMNS] = {};
      memcpy(most, logits.at(row, 0), sizeof most);
      for (int64_t column = COLUMNS; column < output_dim; column += COLUMNS) {
        const float* own = logits.at(row, column);
        for (int64_t j = 0; j < COLUMNS; ++j) most[j] = own[j] > most[j] ? own[j] : most[j];
      }
      for (int64_t some = COLUMNS / 2; some > 0; some /= 2)
        for (int64_t j = 0; j < some; ++j) most[j] = most[j + some] > most[j] ? most[j + some] : most[j];
      for (int64_t column = 0; column < output_dim; column += COLUMNS) {
        const float* own = logits.at(row, column);
#pragma omp simd
        for (int64_t j = 0; j < COLUMNS; ++j) sum[j] += share_of(own[j], most[0]);
      }
      for (int64_t some = COLUMNS / 2; some > 0; some /= 2)
        for (int64_t j = 0; j < some; ++j) sum[j] += sum[j + some];
      largest[start + row] = most[0];
      sums[start + row] = sum[0];
    });
  }
  return DONE;
}

// Computes the gradients of a linear layer from its outputs' `results`, the log-sum-exps, and their gradients.
template <class Format>
Status log_sum_exp_backward(const Logits& all, const float* results, const float* grad_results, const LinearGradients& grad, int64_t threads) {
  Matrix logits{};
  int64_t first = 0;
  const auto prepare = [&](const Team& team, int64_t start, float* memory) {
    logits = logits_of_block<Format>(team, all, start, memory);
    first = start;
  };
  const auto output = [&](int64_t row, int64_t column, float* values) {
    const float *own = logits.at(row - first, column), result = results[row], gradient = grad_results[row];
#pragma omp simd
    for (int64_t j = 0; j < COLUMNS; ++j) values[j] = share_of(own[j], result) * gradient;
  };
  return linear_gradients<Format>(all.layer, all.inputs, all.count, grad, threads, output, unchanged, logits_size<Format>(all), prepare);
}

}  // namespace
