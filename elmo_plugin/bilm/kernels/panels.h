// Products of rows with a frozen weight on a CPU.
//
// A weight lies in panels of 32 of its rows, shape `(output_dim / 32, input_dim, 32)`, in float32 or in half precision; all else is in
// float32. Up to 12 rows at a time are multiplied with a part of a panel, 256 numbers of each row, which stays in the processor's first
// cache for the rows after them, while the next part is asked for: so weights are read from memory during arithmetic, not before it.
//
// Each sum goes over 256 numbers in their order, and over those sums in theirs, whatever the number of rows, threads or lanes: a row's bits
// depend on none of them.

#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace {

// Columns of a panel, and how many of a row's numbers are multiplied at a time. Rows stand so far apart that they do not meet in a cache.
constexpr int64_t COLUMNS = 32, DEPTH = 256, APART = DEPTH + 16;
// Bytes of a cache's line; of `__builtin_prefetch`: into the second cache, into the first.
constexpr int64_t LINE = 64;
constexpr int SECOND = 2, FIRST = 3;

struct Half {
  uint16_t bits;
};

#ifdef __AVX512F__

// With 12 rows, or 3 and four panels, there are 24 vectors of sums, of 32 that a processor holds.
constexpr int LANES = 16, MOST_ROWS = 12, FEW_ROWS = 3;
using Vector = __m512;

inline Vector fused(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline Vector filled(float value) { return _mm512_set1_ps(value); }
inline Vector load(const float* place) { return _mm512_loadu_ps(place); }
inline Vector load(const Half* place) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(place))); }

#else

constexpr int LANES = 8, MOST_ROWS = 3, FEW_ROWS = 0;
typedef float Vector __attribute__((vector_size(4 * LANES)));

inline float widened(float value) { return value; }

// The exponent's bits are three fewer, and it begins 112 higher.
inline float widened(Half half) {
  const uint32_t bits = static_cast<uint32_t>(half.bits & 0x7fff) << 13;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return (half.bits & 0x8000 ? -0x1p112f : 0x1p112f) * value;
}

inline Vector fused(Vector a, Vector b, Vector c) {
  for (int lane = 0; lane < LANES; ++lane) c[lane] = std::fma(a[lane], b[lane], c[lane]);
  return c;
}

inline Vector filled(float value) {
  Vector vector;
  for (int lane = 0; lane < LANES; ++lane) vector[lane] = value;
  return vector;
}

template <class Weight>
inline Vector load(const Weight* place) {
  Vector value;
  for (int lane = 0; lane < LANES; ++lane) value[lane] = widened(place[lane]);
  return value;
}

#endif

constexpr int VECTORS = COLUMNS / LANES;

// Numbers of `LANES` rows, `apart` from each other, to where the numbers of a column lie together, `COLUMNS` from the next ones.
inline void transpose(const float* from, int64_t apart, float* to) {
#ifdef __AVX512F__
  Vector lines[LANES];
#pragma GCC unroll 64
  for (int row = 0; row < LANES; ++row) lines[row] = load(from + row * apart);
  // Blocks beside the diagonal change places, from single numbers to halves of all.
#pragma GCC unroll 4
  for (int size = 1; size < LANES; size *= 2) {
    int32_t upper[LANES], lower[LANES];
#pragma GCC unroll 64
    for (int lane = 0; lane < LANES; ++lane) {
      upper[lane] = lane & size ? LANES + lane - size : lane;
      lower[lane] = lane & size ? LANES + lane : lane + size;
    }
    const __m512i of_upper = _mm512_loadu_si512(upper), of_lower = _mm512_loadu_si512(lower);
#pragma GCC unroll 64
    for (int row = 0; row < LANES; ++row) {
      if (row & size) continue;
      const Vector one = lines[row], other = lines[row + size];
      lines[row] = _mm512_permutex2var_ps(one, of_upper, other);
      lines[row + size] = _mm512_permutex2var_ps(one, of_lower, other);
    }
  }
#pragma GCC unroll 64
  for (int column = 0; column < LANES; ++column) std::memcpy(to + column * COLUMNS, &lines[column], sizeof(Vector));
#else
  for (int column = 0; column < LANES; ++column)
    for (int row = 0; row < LANES; ++row) to[column * COLUMNS + row] = from[row * apart + column];
#endif
}

// 32 of a weight's rows as they lie, shape `(32, dim)`, to a panel.
inline void lay_out(const float* rows, int64_t dim, float* panel) {
  for (int64_t k = 0; k < dim; k += LANES)
    for (int v = 0; v < VECTORS; ++v) transpose(rows + v * LANES * dim + k, dim, panel + k * COLUMNS + v * LANES);
}

// A part of a panel: so many numbers of each of its rows.
template <class Weight>
struct Part {
  const Weight* weights;
  int64_t depth;
};

// Panels that are multiplied together with few rows, whose own sums would wait for each other. Processors fetch four weights at a time by
// themselves, and faster when nothing is asked for.
constexpr int TOGETHER = 4;

// Lines of the next part, `step` bytes each time, at most as many as a row of a panel has.
inline void ask_for_next(const char* ahead, int64_t step) {
  __builtin_prefetch(ahead, 0, SECOND);
  if (step > LINE) __builtin_prefetch(ahead + LINE, 0, SECOND);
}

// Products of rows, `APART` apart, with a part of each panel, or added to what is there. Meanwhile what lies `ahead` of a single panel is
// asked for, a step of so many bytes each time.
template <int ROWS, int PANELS, class Weight>
void multiply(const float* rows, Part<Weight> part, int64_t panels_apart, float* sums, int64_t sums_apart, bool add, const char* ahead,
              int64_t step) {
  constexpr int WIDTH = PANELS * VECTORS;
  Vector sum[ROWS][WIDTH];
#pragma GCC unroll 64
  for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 64
    for (int v = 0; v < WIDTH; ++v) sum[row][v] = filled(0.0f);
  for (int64_t k = 0; k < part.depth; ++k) {
#pragma GCC unroll 64
    for (int panel = 0; panel < PANELS; ++panel) {
      if (PANELS == 1) ask_for_next(ahead + k * step, step);
      Vector weight[VECTORS];
#pragma GCC unroll 64
      for (int v = 0; v < VECTORS; ++v) weight[v] = load(part.weights + panel * panels_apart + k * COLUMNS + v * LANES);
#pragma GCC unroll 64
      for (int row = 0; row < ROWS; ++row) {
        const Vector value = filled(rows[row * APART + k]);
#pragma GCC unroll 64
        for (int v = 0; v < VECTORS; ++v) sum[row][panel * VECTORS + v] = fused(value, weight[v], sum[row][panel * VECTORS + v]);
      }
    }
  }
#pragma GCC unroll 64
  for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 64
    for (int v = 0; v < WIDTH; ++v) {
      float* place = sums + row * sums_apart + v * LANES;
      if (add) sum[row][v] += load(place);
      std::memcpy(place, &sum[row][v], sizeof(Vector));
    }
}

// Rows are multiplied in so many groups of about the same size.
inline int64_t groups_of(int64_t count) { return (count + MOST_ROWS - 1) / MOST_ROWS; }

// Calls with a number of rows that is known when this is compiled, up to `ROWS`.
template <int ROWS, class Function>
void with_rows(int64_t count, Function function) {
  if constexpr (ROWS > 0) {
    if (count == ROWS)
      function(std::integral_constant<int, ROWS>{});
    else
      with_rows<ROWS - 1>(count, function);
  }
}

// Calls with each group of rows: their number, the first, and what is asked for meanwhile. Groups share the next part, of which there are
// `lines`, so many bytes each.
template <class Function>
void in_groups(int64_t count, const char* next, int64_t lines, int64_t bytes, Function function) {
  const int64_t groups = groups_of(count), step = bytes / groups;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t start = group * count / groups, end = (group + 1) * count / groups;
    const char* ahead = next + group * lines * step;
    with_rows<MOST_ROWS>(end - start, [&](auto number) { function(number, start, ahead, step); });
  }
}

// As many of a panel's numbers from `k` on as are multiplied at a time.
template <class Weight>
Part<Weight> part_of(const Weight* panel, int64_t k, int64_t dim, int64_t depth = DEPTH) {
  return {panel + k * COLUMNS, dim - k < depth ? dim - k : depth};
}

// Rows in parts of `DEPTH`, each part of all rows in one place: `(parts, count, APART)`.
struct Rows {
  // So many are multiplied with several panels at a time.
  static constexpr int FEW = FEW_ROWS;

  float* places;
  int64_t count, dim;

  static int64_t size(int64_t count, int64_t dim) { return (dim + DEPTH - 1) / DEPTH * count * APART; }
  float* at(int64_t row, int64_t column) const { return places + (column / DEPTH * count + row) * APART + column % DEPTH; }
  // They are multiplied as they are.
  void finish(int64_t) const {}
};

// Groups of rows for which to widen a part of half precision once pays; on Intel with AMX no fewer than eight were tried.
constexpr int64_t WIDENED_FOR = 4;

inline Part<float> widened(Part<Half> part, float* to) {
  for (int64_t i = 0; i < part.depth * COLUMNS; i += LANES) {
    const Vector value = load(part.weights + i);
    std::memcpy(to + i, &value, sizeof value);
  }
  return Part<float>{to, part.depth};
}

// A panel's product with the first `count` rows. Meanwhile what is `following` is asked for, or where nothing is given the next panel.
template <class Weight>
void multiply_panel(const Rows& rows, int64_t count, const Weight* panel, float* sums, int64_t sums_apart, const Weight* following = nullptr) {
  for (int64_t k = 0; k < rows.dim; k += DEPTH) {
    const Part<Weight> part = part_of(panel, k, rows.dim);
    const Weight* ahead = following == nullptr ? part.weights + part.depth * COLUMNS : following + k * COLUMNS;
    const char* next = reinterpret_cast<const char*>(ahead);
    const auto multiply_groups = [&](auto some) {
      in_groups(count, next, part.depth, COLUMNS * sizeof(Weight), [&](auto number, int64_t start, const char* lines, int64_t step) {
        multiply<number.value, 1>(rows.at(start, k), some, 0, sums + start * sums_apart, sums_apart, k > 0, lines, step);
      });
    };
    if constexpr (sizeof(Weight) < sizeof(float)) {
      if (groups_of(count) >= WIDENED_FOR) {
        alignas(64) float wide[DEPTH * COLUMNS];
        multiply_groups(widened(part, wide));
        continue;
      }
    }
    multiply_groups(part);
  }
}

// The same of `FEW_ROWS` at most with `TOGETHER` panels, `panels_apart`.
template <class Weight>
void multiply_few(const Rows& rows, int64_t count, const Weight* panels, int64_t panels_apart, float* sums, int64_t sums_apart) {
  for (int64_t k = 0; k < rows.dim; k += DEPTH) {
    const Part<Weight> part = part_of(panels, k, rows.dim);
    with_rows<FEW_ROWS>(count, [&](auto number) {
      multiply<number.value, TOGETHER>(rows.at(0, k), part, panels_apart, sums, sums_apart, k > 0, nullptr, 0);
    });
  }
}

// Products with `TOGETHER` panels, side by side.
template <class Operand, class Weight>
void multiply_panels(const Operand& rows, int64_t count, const Weight* panels, int64_t panels_apart, float* sums, int64_t sums_apart) {
  if (count <= Operand::FEW) return multiply_few(rows, count, panels, panels_apart, sums, sums_apart);
  for (int panel = 0; panel < TOGETHER; ++panel)
    multiply_panel(rows, count, panels + panel * panels_apart, sums + panel * COLUMNS, sums_apart);
}

}  // namespace
