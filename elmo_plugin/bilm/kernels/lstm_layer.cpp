// A frozen LSTM layer on a CPU: products, gates and projections of many steps in one call.

#include <omp.h>

#include <algorithm>
#include <vector>

#include "gates.h"
#include "panels.h"

namespace {

// Rows ahead for which what others have written is asked for: an input's products are pages apart.
constexpr int64_t ROWS_AHEAD = 4;

// Gates of 32 cells, from their sums `i, f, g, o`, 32 each.
__attribute__((noinline)) void gate(const float* sums, const float* added, int64_t added_apart, float* cell, float* gated, float clip) {
#pragma omp simd
  for (int64_t j = 0; j < COLUMNS; ++j) {
    const float i = sigmoid(sums[j] + added[j]);
    const float f = sigmoid(sums[COLUMNS + j] + added[added_apart + j]);
    const float g = tangent(sums[2 * COLUMNS + j] + added[2 * added_apart + j]);
    const float o = sigmoid(sums[3 * COLUMNS + j] + added[3 * added_apart + j]);
    const float sum = clipped(std::fma(f, cell[j], i * g), clip);
    cell[j] = sum;
    gated[j] = o * tangent(sum);
  }
}

void ask_for(const float* place) {
  for (int64_t j = 0; j < COLUMNS; j += LANES) __builtin_prefetch(place + j, 1, FIRST);
}

template <class Weight>
void run(const float* input_products, const Weight* state, const Weight* projection, float* hidden, float* cell, float* outputs,
         const int64_t* sizes, int64_t steps, int64_t width, int64_t dim, float cell_clip, float projection_clip, int threads) {
  const int64_t most = sizes[0];
  // Kept for the next call.
  static thread_local std::vector<float> memory;
  const int64_t size_of_hidden = Rows::size(most, dim), size_of_gated = Rows::size(most, width), size_of_sums = most * 4 * COLUMNS;
  memory.resize(std::max<size_t>(memory.size(), size_of_hidden + size_of_gated + threads * size_of_sums));
  const Rows before{memory.data(), most, dim}, gated{before.places + size_of_hidden, most, width};
  float* const all_sums = gated.places + size_of_gated;
#pragma omp parallel num_threads(threads)
  {
    float* const sums = all_sums + omp_get_thread_num() * size_of_sums;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < most; ++row)
      for (int64_t column = 0; column < dim; column += COLUMNS)
        std::memcpy(before.at(row, column), hidden + row * dim + column, COLUMNS * sizeof(float));
    const float* added = input_products;
    float* output = outputs;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t size = sizes[step];
#pragma omp for schedule(static)
      for (int64_t column = 0; column < width; column += COLUMNS) {
        for (int64_t gate = 0; gate < 4; ++gate)
          multiply_panel(before, size, state + (gate * width + column) * dim, sums + gate * COLUMNS, 4 * COLUMNS);
        for (int64_t row = 0; row < size; ++row) {
          const float* from = added + row * 4 * width + column;
          for (int64_t gate = 0; gate < 4; ++gate) ask_for(from + (4 * ROWS_AHEAD + gate) * width);
          ask_for(cell + (row + ROWS_AHEAD) * width + column);
          gate(sums + row * 4 * COLUMNS, from, width, cell + row * width + column, gated.at(row, column), cell_clip);
        }
      }
      const int64_t staying = step + 1 < steps ? sizes[step + 1] : 0;
#pragma omp for schedule(static)
      for (int64_t column = 0; column < dim; column += COLUMNS) {
        multiply_panel(gated, size, projection + column * width, output + column, dim);
        for (int64_t row = 0; row < size; ++row) {
          float* place = output + row * dim + column;
          for (int64_t j = 0; j < COLUMNS; ++j) place[j] = clipped(place[j], projection_clip);
          float* next = row < staying ? before.at(row, column) : hidden + row * dim + column;
          std::memcpy(next, place, COLUMNS * sizeof(float));
        }
      }
      added += size * 4 * width;
      output += size * dim;
    }
  }
}

}  // namespace

// Names end in the type of the weights. `hidden`, shape `(sizes[0], dim)`, and `cell` become those after each row's last step.
#define FROZEN_LAYER(NAME, WEIGHT)                                                                                                     \
  extern "C" void NAME(const float* input_products, const WEIGHT* state, const WEIGHT* projection, float* hidden, float* cell,         \
                       float* outputs, const int64_t* sizes, int64_t steps, int64_t width, int64_t dim, float cell_clip,               \
                       float projection_clip, int threads) {                                                                           \
    run(input_products, state, projection, hidden, cell, outputs, sizes, steps, width, dim, cell_clip, projection_clip, threads);      \
  }

FROZEN_LAYER(frozen_layer_float32, float)
FROZEN_LAYER(frozen_layer_float16, Half)
