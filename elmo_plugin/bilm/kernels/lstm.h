// Rows and weights of a product, and an LSTM layer with packed weights.

#pragma once

#include "gemm.h"

namespace {

// Input products and cells are prefetched this many rows ahead.
constexpr int64_t PREFETCH_ROWS = 4;
// Number of input rows that are multiplied together: they stay in the L2 cache while the weight streams through it.
constexpr int64_t BLOCK_ROWS = 256;

template <class Format>
constexpr int64_t panel_size(int64_t dim) {
  return dim / Format::PER_LANE * COLUMNS + Format::SCALES;
}

// Size of a packed weight of shape `(output_dim, dim)`, in floats.
template <class Format>
constexpr int64_t weight_size(int64_t output_dim, int64_t dim) {
  return output_dim / COLUMNS * panel_size<Format>(dim);
}

// Packs a row-major weight of shape `(output_dim, dim)` in a format without scales, and returns `panels`.
template <class Format>
const float* pack_weight(const Team& team, const float* weight, int64_t output_dim, int64_t dim, float* panels) {
  team.each(output_dim / COLUMNS, [&](int64_t number, int) {
    const float* rows = weight + number * COLUMNS * dim;
    float* panel = panels + number * panel_size<Format>(dim);
    if constexpr (Format::PER_LANE == 1) {
      pack_panel(rows, dim, dim, panel);
    } else {
      constexpr int64_t LANES_AT_ONCE = COLUMNS / Format::PER_LANE;
      alignas(LINE) float lanes[COLUMNS * LANES_AT_ONCE];
      for (int64_t k = 0; k < dim; k += COLUMNS, panel += LANES_AT_ONCE * COLUMNS) {
        for (int64_t row = 0; row < COLUMNS; ++row) Format::pack(rows + row * dim + k, COLUMNS, lanes + row * LANES_AT_ONCE, nullptr);
        pack_panel(lanes, LANES_AT_ONCE, LANES_AT_ONCE, panel);
      }
    }
  });
  return panels;
}

// A frozen weight, shape `(output_dim, dim)`.
template <class Format>
struct Weight {
  const float* data;
  int64_t dim;
  bool row_major;

  Panels panels(int64_t column, int64_t column_stride = COLUMNS) const {
    const int64_t size = panel_size<Format>(dim);
    return {data + column / COLUMNS * size, column_stride / COLUMNS * size};
  }

  // Computes the 32 output columns from `column` on, for the first `count` rows.
  void multiply_by(const Rows<Format>& rows, int64_t count, int64_t column, float* products, int64_t stride) const {
    if constexpr (Format::PER_LANE == 1) {
      if (row_major) return multiply_row_major(rows, count, data + column * dim, products, stride);
    }
    multiply<1>(rows, count, panels(column), products, stride);
  }
};

// Copies rows, shape `(count, rows.dim)`, into `rows`, packed.
template <class Format>
void load_rows(const Team& team, const float* from, const Rows<Format>& rows, int64_t count) {
  team.each(count, [&](int64_t row, int) { rows.load(row, from + row * rows.dim); });
}

// Packs rows of which `set` wrote all numbers.
template <class Format>
void pack_rows(const Team& team, const Rows<Format>& rows, int64_t count) {
  if constexpr (Format::PARAMETERS > 0) team.each(count, [&](int64_t row, int) { rows.pack(row); });
}

// Numbers of rows in blocks of 32 columns, shape `(columns / 32, count, 32)`, in a format without scales.
template <class Format>
struct Blocks {
  float* data;
  int64_t count;

  float* at(int64_t row, int64_t column) const { return data + (column / COLUMNS * count + row) * (COLUMNS / Format::PER_LANE); }
  void put(int64_t row, int64_t column, const float* from) const { Format::pack(from, COLUMNS, at(row, column), nullptr); }
  void get(int64_t row, int64_t column, float* to) const { Format::unpack(at(row, column), to); }
};

// Applies the gates to 32 cells of a row. `sums` holds products of the state weight, 32 for each of `i, f, g, o`; `added` those of the input weight.
// If `SAVES`, it overwrites `sums` with the gates' activations.
template <bool SAVES>
__attribute__((noinline)) void apply_gates(float* sums, const float* added, int64_t added_stride, const float* bias, int64_t width, float* cell,
                                           float* gated, float clip) {
#pragma omp simd
  for (int64_t j = 0; j < COLUMNS; ++j) {
    float i = sums[j] + (added[j] + bias[j]);
    float f = sums[COLUMNS + j] + (added[added_stride + j] + bias[width + j]);
    float g = sums[2 * COLUMNS + j] + (added[2 * added_stride + j] + bias[2 * width + j]);
    float o = sums[3 * COLUMNS + j] + (added[3 * added_stride + j] + bias[3 * width + j]);
    gated[j] = lstm_gates(i, f, g, o, cell[j], clip);
    if (SAVES) {
      sums[j] = i;
      sums[COLUMNS + j] = f;
      sums[2 * COLUMNS + j] = g;
      sums[3 * COLUMNS + j] = o;
    }
  }
}

void prefetch_columns(const float* place) {
  for (int64_t j = 0; j < COLUMNS; j += LINE / 4) __builtin_prefetch(place + j, 1, 3);
}

// Weights of an LSTM layer, and the widths of its cell, output and input. `compiled.py` declares the same structure.
struct Layer {
  const float *input, *bias, *state, *projection;
  int64_t width, dim, input_dim, row_major;
  float cell_clip, projection_clip;
};

inline int64_t count_rows(const int64_t* sizes, int64_t steps) {
  int64_t count = 0;
  for (int64_t step = 0; step < steps; ++step) count += sizes[step];
  return count;
}

// Computes `inputs W^T` in the shape `(4 * width / 32, count, 32)`, in which the columns that a step reads together are contiguous.
template <class Format>
void multiply_inputs(const Team& team, const Layer& layer, const float* inputs, int64_t count, float* outputs, float* scratch) {
  const int64_t max_rows = minimum(count, BLOCK_ROWS);
  const Rows<Format> rows{scratch, max_rows, layer.input_dim};
  const Weight<Format> weight{layer.input, layer.input_dim, layer.row_major != 0};
  for (int64_t start = 0; start < count; start += max_rows) {
    const int64_t size = minimum(count - start, max_rows);
    load_rows(team, inputs + start * layer.input_dim, rows, size);
    team.ranges(4 * layer.width / COLUMNS, [&](int64_t begin, int64_t end, int) {
      [[maybe_unused]] const Tiles tiles;
      for (int64_t column = begin * COLUMNS; column < end * COLUMNS; column += COLUMNS) {
        weight.multiply_by(rows, size, column, outputs + column * count + start * COLUMNS, COLUMNS);
      }
    });
  }
}

constexpr int64_t WIDE = GATES * COLUMNS;

// Columns of a product in an item of work: 128 if that leaves an item for each thread, else 32.
inline int64_t columns_at_once(int64_t dim, int threads) { return dim % WIDE == 0 && dim / WIDE >= threads ? WIDE : COLUMNS; }

template <class Format>
void multiply_columns(const Rows<Format>& rows, int64_t count, Panels panels, int64_t columns, float* products, int64_t stride) {
  if (columns > COLUMNS)
    multiply<GATES>(rows, count, panels, products, stride);
  else
    multiply<1>(rows, count, panels, products, stride);
}

// Multiplies the first `count` rows by a packed weight of `output_dim` rows, and calls `finish(column, columns)` for columns that are done.
template <class Format, class Finish>
void multiply_all(const Team& team, const Rows<Format>& rows, int64_t count, const float* weight, int64_t output_dim, float* products,
                  const Finish& finish) {
  const int64_t columns = columns_at_once(output_dim, team.threads);
  team.ranges(count > 0 ? output_dim / columns : 0, [&](int64_t begin, int64_t end, int) {
    [[maybe_unused]] const Tiles tiles;
    for (int64_t column = begin * columns; column < end * columns; column += columns) {
      multiply_columns(rows, count, Weight<Format>{weight, rows.dim, false}.panels(column), columns, products + column, output_dim);
      finish(column, columns);
    }
  });
}

// Scratch of `run_steps`, in floats.
template <class Format>
int64_t steps_scratch(const Layer& layer, int64_t max_rows, int threads) {
  return Rows<Format>::size(max_rows, layer.dim) + Rows<Format>::size(max_rows, layer.width) + threads * max_rows * WIDE;
}

// Runs `steps` steps from the input products of their `count` rows; step `t` has `sizes[t]` rows. `hidden`, shape `(sizes[0], dim)`, and `cell` hold
// the states before the first step, and on return those after each row's last step. If `SAVES`, the gates' activations and new cells are written to
// blocks, from row `start` on.
template <class Format, bool SAVES>
void run_steps(const Team& team, const Layer& layer, const float* products, int64_t count, float* hidden, float* cell, float* outputs,
               const int64_t* sizes, int64_t steps, float* scratch, const Blocks<Format>& activations, const Blocks<Float32>& cells, int64_t start) {
  const int64_t width = layer.width, dim = layer.dim, max_rows = sizes[0];
  const Rows<Format> before{scratch, max_rows, dim};
  const Rows<Format> gated{scratch + Rows<Format>::size(max_rows, dim), max_rows, width};
  float* const all_sums = gated.data + Rows<Format>::size(max_rows, width);
  const Weight<Format> state{layer.state, dim, false};
  constexpr bool PUTS = Rows<Format>::PACKED && Format::PARAMETERS == 0;
  const int64_t gate_stride = width / COLUMNS * count * COLUMNS;
  load_rows(team, hidden, before, max_rows);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t size = sizes[step], staying = step + 1 < steps ? sizes[step + 1] : 0;
    team.ranges(width / COLUMNS, [&](int64_t begin, int64_t end, int thread) {
      [[maybe_unused]] const Tiles tiles;
      float* const all = all_sums + thread * max_rows * WIDE;
      for (int64_t column = begin * COLUMNS; column < end * COLUMNS; column += COLUMNS) {
        multiply<GATES>(before, size, state.panels(column, width), all, WIDE);
        for (int64_t row = 0; row < size; ++row) {
          const float* added = products + row * COLUMNS + column * count;
          for (int64_t gate = 0; gate < GATES; ++gate) prefetch_columns(added + PREFETCH_ROWS * COLUMNS + gate * gate_stride);
          prefetch_columns(cell + (row + PREFETCH_ROWS) * width + column);
          float *own = cell + row * width + column, *sums = all + row * WIDE, unpacked[COLUMNS];
          float* const output = PUTS ? unpacked : gated.at(row, column);
          apply_gates<SAVES>(sums, added, gate_stride, layer.bias + column, width, own, output, layer.cell_clip);
          if constexpr (PUTS) gated.put(row, column, output);
          if constexpr (SAVES) {
            for (int64_t gate = 0; gate < GATES; ++gate) activations.put(start + row, gate * width + column, sums + gate * COLUMNS);
            cells.put(start + row, column, own);
          }
        }
      }
    });
    pack_rows(team, gated, size);
    multiply_all(team, gated, size, layer.projection, dim, outputs, [&](int64_t column, int64_t columns) {
      for (int64_t row = 0; row < size; ++row) {
        float* place = outputs + row * dim + column;
        for (int64_t j = 0; j < columns; ++j) place[j] = clamp(place[j], layer.projection_clip);
        if (row >= staying) memcpy(hidden + row * dim + column, place, columns * sizeof(float));
        for (int64_t j = 0; j < columns && row < staying; j += COLUMNS) before.set(row, column + j, place + j);
      }
    });
    pack_rows(team, before, staying);
    products += size * COLUMNS;
    start += size;
    outputs += size * dim;
  }
}

inline bool has_nan(const float* values, int64_t count) {
  int32_t found = 0;
  for (int64_t i = 0; i < count; ++i) found |= values[i] != values[i];
  return found != 0;
}

// Runs an LSTM layer over packed rows, shape `(count, input_dim)`; `outputs` has shape `(count, dim)`. Input products are computed for several steps
// at a time. If `SAVES`, all weights are row-major, and `activations` and `cells` get what the backward pass needs.
template <class Format, bool SAVES>
Status run_layer(const Layer& layer, const float* inputs, float* hidden, float* cell, float* outputs, float* activations, float* cells,
                 const int64_t* sizes, int64_t steps, int threads) {
  const Team team(threads);
  const int64_t count = count_rows(sizes, steps), max_size = steps > 0 ? sizes[0] : 0, max_rows = maximum(BLOCK_ROWS, max_size);
  const int64_t at_once = minimum(count, max_rows), gates = GATES * layer.width, products_size = at_once * gates;
  // Float32 products with the input weight, which is large, pack it part by part.
  constexpr bool PACKS_INPUT = SAVES && Rows<Format>::PACKED;
  const int64_t state_size = SAVES ? weight_size<Format>(gates, layer.dim) : 0, projection_size = SAVES ? weight_size<Format>(layer.dim, layer.width) : 0;
  const int64_t input_size = PACKS_INPUT ? weight_size<Format>(gates, layer.input_dim) : 0;
  const int64_t inputs_size = Rows<Format>::size(minimum(at_once, BLOCK_ROWS), layer.input_dim);
  float* const products = elmo_scratch(products_size + state_size + projection_size + input_size +
                                       maximum(inputs_size, steps_scratch<Format>(layer, max_size, team.threads)));
  if (products == nullptr) return NO_MEMORY;
  float *const state = products + products_size, *const projection = state + state_size, *const input = projection + projection_size;
  Layer own = layer;
  if constexpr (SAVES) {
    own.state = pack_weight<Format>(team, layer.state, gates, layer.dim, state);
    own.projection = pack_weight<Format>(team, layer.projection, layer.dim, layer.width, projection);
  }
  if constexpr (PACKS_INPUT) {
    own.input = pack_weight<Format>(team, layer.input, gates, layer.input_dim, input);
    own.row_major = 0;
  }
  int64_t start = 0;
  for (int64_t step = 0, next; step < steps; step = next) {
    int64_t rows = 0;
    for (next = step; next < steps && (next == step || rows + sizes[next] <= max_rows); ++next) rows += sizes[next];
    multiply_inputs<Format>(team, own, inputs + start * own.input_dim, rows, products, input + input_size);
    run_steps<Format, SAVES>(team, own, products, rows, hidden, cell, outputs + start * own.dim, sizes + step, next - step, input + input_size,
                             {activations, count}, {cells, count}, start);
    start += rows;
  }
  return !SAVES && has_nan(outputs, count * layer.dim) ? HAS_NAN : DONE;
}

}  // namespace
