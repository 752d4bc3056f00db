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
// outputs. `finish(row, column, values)` may change 32 gradients of inputs. Before each block of rows, `prepare(team, start, memory)` is called, with
// `memory` for `more` floats.
template <class Format, class Output, class Finish, class Prepare>
Status linear_gradients(const float* weight, int64_t output_dim, int64_t dim, const float* inputs, int64_t count, const LinearGradients& grad,
                        int threads, const Output& output, const Finish& finish, int64_t more, const Prepare& prepare) {
  const Team team(threads);
  GradientPanels<Format> gradients{nullptr, output_dim, count};
  const int64_t max_rows = minimum(count, BLOCK_ROWS), packed_size = weight_size<Format>(dim, output_dim);
  float* const memory = elmo_scratch(
      more + gradients.size() +
      maximum(packed_size + Rows<Format>::size(max_rows, output_dim), gradient_scratch<Format>(team.threads, count)));
  if (memory == nullptr) return NO_MEMORY;
  gradients.data = memory + more;
  float* const packed = gradients.data + gradients.size();
  const Rows<Format> rows{packed + packed_size, max_rows, output_dim};
  gradients.finish();
  if (grad.bias) memset(grad.bias, 0, output_dim * sizeof(float));
  if (grad.inputs) pack_transposed<Format>(team, weight, dim, output_dim, packed);
  for (int64_t start = 0; start < count; start += max_rows) {
    const int64_t size = minimum(count - start, max_rows);
    prepare(team, start, memory);
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
      multiply_all(team, rows, size, packed, dim, grad.inputs + start * dim, [&](int64_t column, int64_t columns) {
        for (int64_t row = start; row < start + size; ++row)
          for (int64_t j = column; j < column + columns; j += COLUMNS) finish(row, j, grad.inputs + row * dim + j);
      });
  }
  if (grad.weight) weight_gradient<Format, true>(team, gradients, inputs, dim, grad.weight, packed);
  return DONE;
}

constexpr auto unchanged = [](int64_t, int64_t, float*) {};
constexpr auto no_preparation = [](const Team&, int64_t, float*) {};

// Computes the gradients of a linear layer from those of its outputs, shape `(count, output_dim)`.
template <class Format>
Status linear_backward(const float* weight, int64_t dim, const float* inputs, const float* grad_outputs, const LinearGradients& grad, int64_t count,
                       int64_t output_dim, int threads) {
  const auto output = [&](int64_t row, int64_t column, float* values) {
    memcpy(values, grad_outputs + row * output_dim + column, COLUMNS * sizeof(float));
  };
  return linear_gradients<Format>(weight, output_dim, dim, inputs, count, grad, threads, output, unchanged, 0, no_preparation);
}

// --- log-sum-exp of a linear layer's outputs, the logits; they are not stored, and the backward pass computes them again ---

// A row leaves out its target, and columns with a negative id. Without `targets`, which may be null, it leaves out only these.
struct Logits {
  const float *weight, *bias, *inputs;
  const int32_t *ids, *targets;
  int64_t dim, output_dim, count;

  int64_t max_rows() const { return minimum(count, BLOCK_ROWS); }
};

// Memory of `logits_of_block`, in floats. Blocks have one row more than is used, so that the logits of a row fall into different cache sets.
template <class Format>
int64_t logits_size(const Logits& all) {
  return weight_size<Format>(all.output_dim, all.dim) + Rows<Format>::size(all.max_rows(), all.dim) + all.output_dim * (all.max_rows() + 1);
}

// Computes the logits of a block of rows; what a row leaves out is minus infinity. The block at 0 comes first: it packs the weight.
template <class Format>
Blocks<Float32> logits_of_block(const Team& team, const Logits& all, int64_t start, float* memory) {
  const Rows<Format> rows{memory + weight_size<Format>(all.output_dim, all.dim), all.max_rows(), all.dim};
  const Blocks<Float32> logits{rows.data + Rows<Format>::size(rows.count, rows.dim), rows.count + 1};
  const int64_t size = minimum(all.count - start, rows.count);
  if (start == 0) pack_weight<Format>(team, all.weight, all.output_dim, all.dim, memory);
  load_rows(team, all.inputs + start * all.dim, rows, size);
  team.ranges(all.output_dim / COLUMNS, [&](int64_t begin, int64_t end, int) {
    [[maybe_unused]] const Tiles tiles;
    for (int64_t column = begin * COLUMNS; column < end * COLUMNS; column += COLUMNS) {
      multiply<1>(rows, size, Weight<Format>{memory, all.dim, false}.panels(column), logits.at(0, column), COLUMNS);
      for (int64_t row = 0; row < size; ++row) {
        const int32_t target = all.targets ? all.targets[start + row] : -1;
        float* own = logits.at(row, column);
        for (int64_t j = 0; j < COLUMNS; ++j) {
          const int32_t id = all.ids[column + j];
          own[j] = (id < 0) | (id == target) ? -__builtin_inff() : own[j] + all.bias[column + j];
        }
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
Status log_sum_exp(const Logits& all, float* largest, float* sums, int threads) {
  const Team team(threads);
  float* const memory = elmo_scratch(logits_size<Format>(all));
  if (memory == nullptr) return NO_MEMORY;
  for (int64_t start = 0; start < all.count; start += all.max_rows()) {
    const Blocks<Float32> logits = logits_of_block<Format>(team, all, start, memory);
    team.each(minimum(all.count - start, all.max_rows()), [&](int64_t row, int) {
      float most[COLUMNS], sum[COLUMNS] = {};
      memcpy(most, logits.at(row, 0), sizeof most);
      for (int64_t column = COLUMNS; column < all.output_dim; column += COLUMNS) {
        const float* own = logits.at(row, column);
        for (int64_t j = 0; j < COLUMNS; ++j) most[j] = own[j] > most[j] ? own[j] : most[j];
      }
      for (int64_t some = COLUMNS / 2; some > 0; some /= 2)
        for (int64_t j = 0; j < some; ++j) most[j] = most[j + some] > most[j] ? most[j + some] : most[j];
      for (int64_t column = 0; column < all.output_dim; column += COLUMNS) {
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
Status log_sum_exp_backward(const Logits& all, const float* results, const float* grad_results, const LinearGradients& grad, int threads) {
  Blocks<Float32> logits{};
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
  return linear_gradients<Format>(all.weight, all.output_dim, all.dim, all.inputs, all.count, grad, threads, output, unchanged,
                                  logits_size<Format>(all), prepare);
}

}  // namespace
