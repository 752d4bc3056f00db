// A frozen LSTM layer on a CPU: its inputs' products, and products, gates and projections of many steps in one call.

#include <omp.h>

#include <algorithm>
#include <vector>

#include "gates.h"
#include "int16_panels.h"
#include "packed_panels.h"
#include "panels.h"

namespace {

// Rows ahead for which the inputs' products and cells are asked for.
constexpr int64_t ROWS_AHEAD = 4;
// Rows of inputs that stay in the second cache while a weight goes by.
constexpr int64_t INPUTS_AT_ONCE = 256;

// Kept for the next call.
float* memory_for(int64_t size) {
  static thread_local std::vector<float> memory;
  memory.resize(std::max<size_t>(memory.size(), size));
  return memory.data();
}

// How rows lie that are multiplied with such a weight, and how many of its elements are behind a panel for each column.
template <class Weight>
struct Layout {
  using Operand = Rows;
  static constexpr int64_t BEHIND = 0;
};

template <>
struct Layout<BFloat16> {
  using Operand = PackedRows<BFloat16>;
  static constexpr int64_t BEHIND = 0;
};

template <>
struct Layout<Byte> {
  using Operand = PackedRows<Byte>;
  static constexpr int64_t BEHIND = sizeof(float) / sizeof(Byte);
};

template <>
struct Layout<Int16> {
  using Operand = PackedRows<Int16>;
  static constexpr int64_t BEHIND = sizeof(float) / sizeof(Int16);
};

// The panel with a column of what comes out.
template <class Weight>
const Weight* panel(const Weight* weight, int64_t column, int64_t dim) {
  return weight + column * (dim + Layout<Weight>::BEHIND);
}

// By all threads.
template <class Operand>
void copy_in(const float* from, const Operand& rows, int64_t count) {
#pragma omp for schedule(static)
  for (int64_t row = 0; row < count; ++row)
    for (int64_t column = 0; column < rows.dim; column += COLUMNS)
      std::memcpy(rows.at(row, column), from + row * rows.dim + column, COLUMNS * sizeof(float));
  rows.finish(count);
}

// Gates of 32 cells, from their sums `i, f, g, o`, 32 each.
__attribute__((noinline)) void take_gates(const float* sums, const float* added, int64_t added_apart, float* cell, float* gated,
                                          float clip) {
#pragma omp simd
  for (int64_t j = 0; j < COLUMNS; ++j) {
    float i = sums[j] + added[j];
    float f = sums[COLUMNS + j] + added[added_apart + j];
    float g = sums[2 * COLUMNS + j] + added[2 * added_apart + j];
    float o = sums[3 * COLUMNS + j] + added[3 * added_apart + j];
    gated[j] = step(i, f, g, o, cell[j], clip);
  }
}

void ask_for(const float* place) {
  for (int64_t j = 0; j < COLUMNS; j += LANES) __builtin_prefetch(place + j, 1, FIRST);
}

template <class Weight>
void run(const float* input_products, int64_t panel_apart, const Weight* state, const Weight* projection,
         float* hidden, float* cell, float* outputs, const int64_t* sizes, int64_t steps, int64_t width, int64_t dim, float cell_clip,
         float projection_clip, int threads) {
  using Operand = typename Layout<Weight>::Operand;
  const int64_t most = sizes[0], size_of_sums = most * TOGETHER * COLUMNS;
  const int64_t size_of_hidden = Operand::size(most, dim), size_of_gated = Operand::size(most, width);
  const Operand before{memory_for(size_of_hidden + size_of_gated + threads * size_of_sums), most, dim};
  const Operand gated{before.places + size_of_hidden, most, width};
  float* const all_sums = gated.places + size_of_gated;
  // Of a projection that are taken together, where that leaves each thread some.
  const int64_t wide = TOGETHER * COLUMNS, columns = dim % wide == 0 && dim / wide >= threads ? wide : COLUMNS;
#pragma omp parallel num_threads(threads)
  {
    float* const sums = all_sums + omp_get_thread_num() * size_of_sums;
    copy_in(hidden, before, most);
    const float* added = input_products;
    const int64_t gate_apart = width / COLUMNS * panel_apart;
    float* output = outputs;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t size = sizes[step];
#pragma omp for schedule(static)
      for (int64_t column = 0; column < width; column += COLUMNS) {
        multiply_panels(before, size, panel(state, column, dim), panel(state, width, dim) - state, sums, TOGETHER * COLUMNS);
        for (int64_t row = 0; row < size; ++row) {
          const float* from = added + row * COLUMNS + column / COLUMNS * panel_apart;
          for (int64_t gate = 0; gate < 4; ++gate) ask_for(from + ROWS_AHEAD * COLUMNS + gate * gate_apart);
          ask_for(cell + (row + ROWS_AHEAD) * width + column);
          take_gates(sums + row * TOGETHER * COLUMNS, from, gate_apart, cell + row * width + column, gated.at(row, column), cell_clip);
        }
      }
      gated.finish(size);
      const int64_t staying = step + 1 < steps ? sizes[step + 1] : 0;
#pragma omp for schedule(static)
      for (int64_t column = 0; column < dim; column += columns) {
        const Weight* panels = panel(projection, column, width);
        if (columns > COLUMNS)
          multiply_panels(gated, size, panels, panel(projection, COLUMNS, width) - projection, output + column, dim);
        else
          multiply_panel(gated, size, panels, output + column, dim);
        for (int64_t row = 0; row < size; ++row) {
          float* place = output + row * dim + column;
          for (int64_t j = 0; j < columns; ++j) place[j] = clipped(place[j], projection_clip);
          float* next = row < staying ? before.at(row, column) : hidden + row * dim + column;
          std::memcpy(next, place, columns * sizeof(float));
        }
      }
      before.finish(staying);
      added += size * COLUMNS;
      output += size * dim;
    }
  }
}

// Products of rows with the weight's 32 rows from `column` on. One in float32 lies as PyTorch has it, shape `(output_dim, input_dim)`: laying a
// panel out takes some hundredths of the time of its product with dozens of rows, and a laid-out copy would be a third of all weights again.
inline void multiply_with(const Rows& rows, int64_t size, const float* weight, int64_t column, float* laid_out, float* output) {
  const float* here = weight + column * rows.dim;
  lay_out(here, rows.dim, laid_out);
  multiply_panel(rows, size, laid_out, output, COLUMNS, here + COLUMNS * rows.dim);
}

template <class Operand, class Weight>
void multiply_with(const Operand& rows, int64_t size, const Weight* weight, int64_t column, float*, float* output) {
  multiply_panel(rows, size, panel(weight, column, rows.dim), output, COLUMNS);
}

// `inputs W^T + bias`, in panels, shape `(output_dim / 32, count, 32)`: what a step reads together lies together.
template <class Weight>
void multiply_inputs(const float* inputs, const Weight* weight, const float* bias, float* outputs, int64_t count, int64_t input_dim,
                     int64_t output_dim, int threads) {
  const int64_t most = std::min(count, INPUTS_AT_ONCE), size_of_panel = input_dim * COLUMNS;
  using Operand = typename Layout<Weight>::Operand;
  const int64_t size_of_rows = Operand::size(most, input_dim);
  const Operand rows{memory_for(size_of_rows + threads * size_of_panel + LINE), most, input_dim};
  // Where a line begins.
  float* const panels = rows.places + size_of_rows + (LINE - reinterpret_cast<uintptr_t>(rows.places + size_of_rows) % LINE) / sizeof(float);
#pragma omp parallel num_threads(threads)
  for (int64_t start = 0; start < count; start += most) {
    const int64_t size = std::min(count - start, most);
    copy_in(inputs + start * input_dim, rows, size);
#pragma omp for schedule(static)
    for (int64_t column = 0; column < output_dim; column += COLUMNS) {
      float* output = outputs + column * count + start * COLUMNS;
      multiply_with(rows, size, weight, column, panels + omp_get_thread_num() * size_of_panel, output);
      for (int64_t row = 0; row < size; ++row)
        for (int64_t j = 0; j < COLUMNS; ++j) output[row * COLUMNS + j] += bias[column + j];
    }
  }
}

}  // namespace

// A weight of shape `(output_dim, input_dim)` to panels.
extern "C" void lay_out_float32(const float* weight, float* panels, int64_t output_dim, int64_t input_dim, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t column = 0; column < output_dim; column += COLUMNS) lay_out(weight + column * input_dim, input_dim, panels + column * input_dim);
}

// Names end in the type of the weights.
#define INPUT_PRODUCTS(NAME, WEIGHT)                                                                                                    \
  extern "C" void NAME(const float* inputs, const WEIGHT* weight, const float* bias, float* outputs, int64_t count, int64_t input_dim,  \
                       int64_t output_dim, int threads) {                                                                               \
    multiply_inputs(inputs, weight, bias, outputs, count, input_dim, output_dim, threads);                                              \
  }

INPUT_PRODUCTS(input_products_float32, float)
INPUT_PRODUCTS(input_products_float16, Half)
INPUT_PRODUCTS(input_products_bfloat16, BFloat16)
INPUT_PRODUCTS(input_products_uint8, Byte)
INPUT_PRODUCTS(input_products_int16, Int16)

// Inputs' products are those above, panels `panel_apart`. `hidden`, shape `(sizes[0], dim)`, and `cell` become those after each row's last
// step.
#define FROZEN_LAYER(NAME, WEIGHT)                                                                                                      \
  extern "C" void NAME(const float* input_products, int64_t panel_apart, const WEIGHT* state, const WEIGHT* projection, float* hidden,  \
                       float* cell, float* outputs, const int64_t* sizes, int64_t steps, int64_t width, int64_t dim, float cell_clip,   \
                       float projection_clip, int threads) {                                                                            \
    run(input_products, panel_apart, state, projection, hidden, cell, outputs, sizes, steps, width, dim, cell_clip, projection_clip,    \
        threads);                                                                                                                       \
  }

FROZEN_LAYER(frozen_layer_float32, float)
FROZEN_LAYER(frozen_layer_float16, Half)
FROZEN_LAYER(frozen_layer_bfloat16, BFloat16)
FROZEN_LAYER(frozen_layer_uint8, Byte)
FROZEN_LAYER(frozen_layer_int16, Int16)
