// Products of rows with whole weights, and an LSTM layer.

#pragma once

#include "gemm.h"

namespace {

// Number of input rows that are multiplied together: they stay in the L2 cache while the weight streams through it.
constexpr int64_t BLOCK_ROWS = 256;
// Input products and cells are prefetched this many rows ahead.
constexpr int64_t PREFETCH_ROWS = 4;
constexpr int64_t WIDE = GATES * COLUMNS;

template <class Format>
constexpr int64_t panel_size(int64_t dim) {
  return dim / Format::PER_LANE * COLUMNS + Format::SCALES;
}

// Size of a packed weight of shape `(output_dim, dim)`, in floats.
template <class Format>
constexpr int64_t weight_size(int64_t output_dim, int64_t dim) {
  return output_dim / COLUMNS * panel_size<Format>(dim);
}

// Weight of shape `(output_dim, dim)`, in panels or row-major.
template <class Format>
struct Weight {
  // Whether row-major weights must be packed before a product; those in float32 are packed part by part meanwhile.
  static constexpr bool PACKS = Rows<Format>::PACKED && Format::SCALES == 0;

  const float* data;
  int64_t output_dim, dim;
  bool row_major = false;

  // Packs a row-major weight, in a format without scales.
  Weight packed(const Team& team, float* panels) const {
    team.each(output_dim / COLUMNS, [&](int64_t number, int) {
      const float* rows = data + number * COLUMNS * dim;
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
    return {panels, output_dim, dim};
  }

  // Memory of `readable`, in floats.
  int64_t packed_size() const { return PACKS && row_major ? weight_size<Format>(output_dim, dim) : 0; }

  // Returns the weight as products read it.
  Weight readable(const Team& team, float* memory) const {
    if constexpr (PACKS)
      if (row_major) return packed(team, memory);
    return *this;
  }

  // Computes `PANELS` times 32 output columns, `column_stride` apart from `column` on, for the first `count` rows.
  template <int PANELS>
  void multiply_by(const Rows<Format>& rows, int64_t count, int64_t column, int64_t column_stride, float* products, int64_t stride) const {
    if constexpr (Format::PER_LANE == 1) {
      for (int panel = 0; row_major && panel < PANELS; ++panel)
        multiply_row_major(rows, count, data + (column + panel * column_stride) * dim, products + panel * COLUMNS, stride);
      if (row_major) return;
    }
    const int64_t size = panel_size<Format>(dim);
    multiply<PANELS>(rows, count, {data + column / COLUMNS * size, column_stride / COLUMNS * size}, products, stride);
  }

  // Computes `columns` output columns, see `columns_at_once`.
  void multiply_columns(const Rows<Format>& rows, int64_t count, int64_t column, int64_t columns, float* products, int64_t stride) const {
    if (columns == WIDE)
      multiply_by<GATES>(rows, count, column, COLUMNS, products, stride);
    else
      multiply_by<1>(rows, count, column, COLUMNS, products, stride);
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

// Packs inputs, shape `(count, dim)`, up to `BLOCK_ROWS` rows at a time, and calls `block(rows, size, start)` for each time.
template <class Format, class Block>
void over_rows(const Team& team, const float* inputs, int64_t count, int64_t dim, float* memory, const Block& block) {
  const Rows<Format> rows{memory, minimum(count, BLOCK_ROWS), dim};
  for (int64_t start = 0; start < count; start += rows.count) {
    const int64_t size = minimum(count - start, rows.count);
    load_rows(team, inputs + start * dim, rows, size);
    block(rows, size, start);
  }
}

// Where products are written.
struct Matrix {
  float* data;
  int64_t row_stride, column_stride = 1;

  float* at(int64_t row, int64_t column) const { return data + row * row_stride + column * column_stride; }
};

// Numbers of rows in blocks of 32 columns, shape `(columns / 32, count, 32)`, in a format without scales.
template <class Format>
struct Blocks {
  float* data;
  int64_t count;

  float* at(int64_t row, int64_t column) const { return data + (column / COLUMNS * count + row) * (COLUMNS / Format::PER_LANE); }
  void put(int64_t row, int64_t column, const float* from) const { Format::pack(from, COLUMNS, at(row, column), nullptr); }
  void get(int64_t row, int64_t column, float* to) const { Format::unpack(at(row, column), to); }
};

// Columns of a product in an item of work: 128 if that leaves an item for each thread, else 32.
inline int64_t columns_at_once(int64_t dim, int threads) { return dim % WIDE == 0 && dim / WIDE >= threads ? WIDE : COLUMNS; }

// Calls `body(column, thread)` for every `step`th column, with AMX tiles configured.
template <class Body>
void each_column(const Team& team, int64_t columns, int64_t step, const Body& body) {
  team.ranges(columns / step, [&](int64_t begin, int64_t end, int thread) {
    [[maybe_unused]] const Tiles tiles;
    for (int64_t column = begin * step; column < end * step; column += step) body(column, thread);
  });
}

// Multiplies the first `count` rows by a weight, and calls `finish(column)` for each 32 columns that are done.
template <class Format, class Finish>
void multiply_all(const Team& team, const Rows<Format>& rows, int64_t count, const Weight<Format>& weight, const Matrix& to, const Finish& finish) {
  const int64_t columns = to.column_stride == 1 ? columns_at_once(weight.output_dim, team.threads) : COLUMNS;
  each_column(team, weight.output_dim, columns, [&](int64_t first, int) {
    if (count > 0) weight.multiply_columns(rows, count, first, columns, to.at(0, first), to.row_stride);
    for (int64_t column = first; column < first + columns; column += COLUMNS) finish(column);
  });
}

constexpr auto nothing = [](int64_t) {};

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

inline void prefetch_columns(const float* place) {
  for (int64_t j = 0; j < COLUMNS; j += LINE / 4) __builtin_prefetch(place + j, 1, 3);
}

// Weights of an LSTM layer, and the widths of its cell, output and input. Without `row_major`, all weights are packed.
struct Layer {
  const float *input, *bias, *state, *projection;
  int64_t width, dim, input_dim, row_major;
  double cell_clip, projection_clip;
};

// Packed rows of an LSTM layer: `inputs`, shape `(count, input_dim)`, and `outputs`, shape `(count, dim)`. `hidden`, shape `(sizes[0], dim)`, and `cell`
// are the states before the first step. What the backward pass needs of the forward pass, `activations` and `cells`, is in `Blocks`.
struct Tensors {
  float *inputs, *hidden, *cell, *outputs, *activations, *cells;
};

inline int64_t count_rows(const int64_t* sizes, int64_t steps) {
  int64_t count = 0;
  for (int64_t step = 0; step < steps; ++step) count += sizes[step];
  return count;
}

inline bool has_nan(const float* values, int64_t count) {
  int32_t found = 0;
  for (int64_t i = 0; i < count; ++i) found |= values[i] != values[i];
  return found != 0;
}

// Runs an LSTM layer; step `t` has `sizes[t]` rows. On return the states are those after each row's last step. Input products are computed for several
// steps at a time. If `SAVES`, all weights are row-major, and activations and cells are written.
template <class Format, bool SAVES>
Status run_layer(const Layer& layer, const Tensors& tensors, const int64_t* sizes, int64_t steps, int64_t threads) {
  const Team team(threads);
  const int64_t width = layer.width, dim = layer.dim, count = count_rows(sizes, steps), most = steps > 0 ? sizes[0] : 0;
  const float cell_clip = layer.cell_clip, projection_clip = layer.projection_clip;
  constexpr bool PUTS = Rows<Format>::PACKED && Format::PARAMETERS == 0;
  Weight<Format> input{layer.input, GATES * width, layer.input_dim, layer.row_major != 0};
  Weight<Format> state{layer.state, GATES * width, dim}, projection{layer.projection, dim, width};
  // Rows whose input products are computed together.
  const int64_t max_rows = minimum(count, maximum(BLOCK_ROWS, most)), products_size = max_rows * GATES * width;
  const int64_t state_size = SAVES ? weight_size<Format>(GATES * width, dim) : 0, projection_size = SAVES ? weight_size<Format>(dim, width) : 0;
  const int64_t packed_size = input.packed_size(), inputs_size = Rows<Format>::size(minimum(max_rows, BLOCK_ROWS), layer.input_dim);
  const int64_t before_size = Rows<Format>::size(most, dim), gated_size = Rows<Format>::size(most, width);
  // Inputs are not needed while steps run. Less memory stays in the caches.
  const int64_t rows_size = maximum(inputs_size, before_size + gated_size + team.threads * most * WIDE);
  float* const scratch = elmo_scratch(products_size + state_size + projection_size + packed_size + rows_size);
  if (scratch == nullptr) return NO_MEMORY;
  float* const weights = scratch + products_size;
  input = input.readable(team, weights + state_size + projection_size);
  if constexpr (SAVES) {
    state = state.packed(team, weights);
    projection = projection.packed(team, weights + state_size);
  }
  float* const inputs = weights + state_size + projection_size + packed_size;
  const Rows<Format> before{inputs, most, dim}, gated{before.data + before_size, most, width};
  float* const all_sums = gated.data + gated_size;
  const Blocks<Format> activations{tensors.activations, count};
  const Blocks<Float32> cells{tensors.cells, count};
  int64_t start = 0;
  for (int64_t step = 0, next; step < steps;) {
    int64_t size_of_block = 0;
    for (next = step; next < steps && (next == step || size_of_block + sizes[next] <= max_rows); ++next) size_of_block += sizes[next];
    // In blocks of 32 columns: those that a step reads together are contiguous.
    const Matrix products{scratch, COLUMNS, size_of_block};
    const auto multiply_inputs = [&](const Rows<Format>& rows, int64_t size, int64_t row) {
      multiply_all(team, rows, size, input, {products.at(row, 0), COLUMNS, size_of_block}, nothing);
    };
    over_rows<Format>(team, tensors.inputs + start * input.dim, size_of_block, input.dim, inputs, multiply_inputs);
    load_rows(team, tensors.hidden, before, sizes[step]);
    for (const int64_t first = start; step < next; ++step) {
      const int64_t size = sizes[step], staying = step + 1 < next ? sizes[step + 1] : 0;
      each_column(team, width, COLUMNS, [&](int64_t column, int thread) {
        float* const all = all_sums + thread * most * WIDE;
        state.template multiply_by<GATES>(before, size, column, width, all, WIDE);
        for (int64_t row = 0; row < size; ++row) {
          float *own = tensors.cell + row * width + column, *sums = all + row * WIDE, unpacked[COLUMNS];
          float* const output = PUTS ? unpacked : gated.at(row, column);
          const float* added = products.at(start - first + row, column);
          for (int64_t gate = 0; gate < GATES; ++gate) prefetch_columns(added + PREFETCH_ROWS * COLUMNS + gate * width * size_of_block);
          prefetch_columns(own + PREFETCH_ROWS * width);
          apply_gates<SAVES>(sums, added, width * size_of_block, layer.bias + column, width, own, output, cell_clip);
          if constexpr (PUTS) gated.set(row, column, output);
          if constexpr (SAVES) {
            for (int64_t gate = 0; gate < GATES; ++gate) activations.put(start + row, gate * width + column, sums + gate * COLUMNS);
            cells.put(start + row, column, own);
          }
        }
      });
      pack_rows(team, gated, size);
      const Matrix outputs{tensors.outputs + start * dim, dim};
      multiply_all(team, gated, size, projection, outputs, [&](int64_t column) {
        for (int64_t row = 0; row < size; ++row) {
          float* own = outputs.at(row, column);
          for (int64_t j = 0; j < COLUMNS; ++j) own[j] = clamp(own[j], projection_clip);
          if (row < staying)
            before.set(row, column, own);
          else
            memcpy(tensors.hidden + row * dim + column, own, COLUMNS * sizeof(float));
        }
      });
      pack_rows(team, before, staying);
      start += size;
    }
  }
  return !SAVES && has_nan(tensors.outputs, count * dim) ? HAS_NAN : DONE;
}

}  // namespace
