// Gradients of a linear layer, and the packing of weights that change between two calls.
//
// Gradients of outputs are stored in blocks of 32 columns, shape `(output_dim / 32, padded, 32)`, with rows of zeros behind the first `count`. Such a
// block is also a panel whose lanes are the rows: a weight's gradient is a product with it. Sums are taken in an order that depends on shapes alone.

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
      Format::pack_pair(rows, rows + stride, panel);
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
  if (count == 0) memset(result, 0, columns * dim * sizeof(float));
  if (count == 0) return;
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

// Multiplies `blocks` of `dim` columns and `padded` rows, of which there are `count`, by packed panels. `outputs` has shape `(count, output_dim)`; if
// `adds`, the products are added to it.
template <class Format>
void multiply_by_panels(const Team& team, const float* blocks, int64_t dim, int64_t padded, int64_t count, const float* panels, int64_t output_dim,
                        float* outputs, bool adds, float* scratch) {
  const int64_t max_rows = minimum(count, ROWS_AT_ONCE);
  float* const all_products = scratch + Rows<Format>::size(max_rows, DEPTH);
  for (int64_t start = 0; start < count; start += max_rows) {
    const int64_t size = minimum(count - start, max_rows);
    for (int64_t k = 0; k < dim; k += DEPTH) {
      const Rows<Format> rows{scratch, max_rows, minimum(DEPTH, dim - k)};
      team.each(size, [&](int64_t row, int) {
        for (int64_t j = 0; j < rows.dim; j += COLUMNS) rows.put(row, j, blocks + (k + j) * padded + (start + row) * COLUMNS);
      });
      team.ranges(output_dim / COLUMNS, [&](int64_t begin, int64_t end, int thread) {
        [[maybe_unused]] const Tiles tiles;
        float* const products = all_products + thread * ROWS_AT_ONCE * COLUMNS;
        for (int64_t column = begin * COLUMNS; column < end * COLUMNS; column += COLUMNS) {
          const int64_t panel = panel_size<Format>(dim);
          multiply<1>(rows, size, Panels{panels + column / COLUMNS * panel + k / Format::PER_LANE * COLUMNS, panel}, products, COLUMNS);
          for (int64_t row = 0; row < size; ++row) {
            float* output = outputs + (start + row) * output_dim + column;
            for (int64_t j = 0; j < COLUMNS; ++j) output[j] = (adds || k > 0 ? output[j] : 0.0f) + products[row * COLUMNS + j];
          }
        }
      });
    }
  }
}

// Gradients of a linear layer to compute; null stands for one that is not needed.
struct LinearGradients {
  float *inputs, *weight, *bias;
};

// Scratch of `linear_gradients`, in floats, for a weight of shape `(output_dim, dim)`.
template <class Format>
int64_t linear_scratch(int threads, int64_t count, int64_t output_dim, int64_t dim) {
  return dim / COLUMNS * panel_size<Format>(output_dim) + scratch_size<Format>(threads, count, round_up(count, COLUMNS));
}

// Fills the rows of a block from `count` on with zeros, and sums the others into `sums` unless it is null.
inline void finish_block(float* block, int64_t count, float* sums) {
  memset(block + count * COLUMNS, 0, (round_up(count, COLUMNS) - count) * COLUMNS * sizeof(float));
  if (sums == nullptr) return;
  memset(sums, 0, COLUMNS * sizeof(float));
  for (int64_t from = 0; from < count; from += BLOCK_ROWS) {
    float part[COLUMNS] = {};
    for (int64_t row = from; row < minimum(from + BLOCK_ROWS, count); ++row)
      for (int64_t j = 0; j < COLUMNS; ++j) part[j] += block[row * COLUMNS + j];
    for (int64_t j = 0; j < COLUMNS; ++j) sums[j] += part[j];
  }
}

// Computes the gradients of a linear layer from those of its outputs, which are stored in blocks. If `adds`, the inputs' gradient is added.
template <class Format>
void linear_gradients(const Team& team, float* blocks, const float* inputs, int64_t count, const float* weight, int64_t output_dim, int64_t dim,
                      const LinearGradients& grad, bool adds, float* scratch) {
  const int64_t padded = round_up(count, COLUMNS);
  team.each(output_dim / COLUMNS, [&](int64_t block, int) {
    finish_block(blocks + block * padded * COLUMNS, count, grad.bias ? grad.bias + block * COLUMNS : nullptr);
  });
  float* const panels = scratch;
  scratch += dim / COLUMNS * panel_size<Format>(output_dim);
  if (grad.inputs) {
    pack_transposed<Format>(team, weight, dim, output_dim, panels);
    multiply_by_panels<Format>(team, blocks, output_dim, padded, count, panels, dim, grad.inputs, adds, scratch);
  }
  if (grad.weight) weight_gradient<Format, true>(team, blocks, output_dim, padded, inputs, dim, count, grad.weight, scratch);
}

// Computes the gradients of a linear layer from those of its outputs, shape `(count, output_dim)`.
template <class Format>
Status linear_backward(const float* weight, int64_t dim, const float* inputs, const float* grad_outputs, const LinearGradients& grad, int64_t count,
                     int64_t output_dim, int threads) {
  const Team team(threads);
  const int64_t padded = round_up(count, COLUMNS);
  float* const blocks = elmo_scratch(output_dim * padded + linear_scratch<Format>(team.threads, count, output_dim, dim));
  if (blocks == nullptr) return NO_MEMORY;
  team.each(count, [&](int64_t row, int) {
    for (int64_t column = 0; column < output_dim; column += COLUMNS)
      memcpy(blocks + column * padded + row * COLUMNS, grad_outputs + row * output_dim + column, COLUMNS * sizeof(float));
  });
  linear_gradients<Format>(team, blocks, inputs, count, weight, output_dim, dim, grad, false, blocks + output_dim * padded);
  return DONE;
}

}  // namespace
