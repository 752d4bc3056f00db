// Products of rows with a frozen weight of bytes or bfloat16 (`int16_panels.h`: whole numbers of 16 bits) on a CPU, of which several are multiplied and added up in one lane of a vector;
// `panels.h` has what is common.
//
// Numbers of a row that share a lane lie together in a panel, shape `(input_dim / 4, 32, 4)` or `(input_dim / 2, 32, 2)`.
//
// Bytes: each row has a scale, and each of the weight's: their largest absolute value becomes 127. Weights are unsigned, 128 more than they
// are worth, since processors multiply unsigned bytes with signed ones; a panel's 32 scales lie behind it. Integers are exact in any order.
//
// bfloat16: rows are rounded to it, sums are float32's and in the order of `panels.h`'s, but without its parts; in a lane the second product
// comes first, as in the processors' own instruction.

#pragma once

#include "panels.h"

namespace {

struct Byte {
  using Number = int8_t;  // of a row
  uint8_t bits;
};

struct BFloat16 {
  using Number = BFloat16;
  uint16_t bits;
};

template <class Weight>
constexpr int64_t IN_A_LANE = sizeof(float) / sizeof(Weight);

// What an unsigned byte is more than it is worth.
constexpr int32_t ZERO = 128;

inline int32_t bits_of(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float with_bits(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// --- sums in a vector's lanes ---

typedef int32_t Integers __attribute__((vector_size(4 * LANES)));

inline Integers filled(int32_t value) { return value - Integers{}; }

// The same where a processor has no instruction for it.
template <class Weight, class Number>
Integers add_one_by_one(Integers sums, const Weight* weights, const Number* row) {
  constexpr int IN_LANE = sizeof(int32_t) / sizeof(Number);
  int32_t lanes[LANES];
  std::memcpy(lanes, &sums, sizeof lanes);
  for (int lane = 0; lane < LANES; ++lane)
    for (int j = 0; j < IN_LANE; ++j) lanes[lane] += weights[lane * IN_LANE + j] * row[j];
  std::memcpy(&sums, lanes, sizeof lanes);
  return sums;
}

// `sums` and the products of as many weights as there are, with a row's numbers for one lane.
inline Integers add_products(Integers sums, const Byte* weights, const int8_t* row) {
#ifdef __AVX512VNNI__
  int32_t four;
  std::memcpy(&four, row, sizeof four);
  return (Integers)_mm512_dpbusd_epi32((__m512i)sums, _mm512_loadu_si512(weights), _mm512_set1_epi32(four));
#else
  return add_one_by_one(sums, &weights->bits, row);
#endif
}

inline Vector add_products(Vector sums, const BFloat16* weights, const BFloat16* row) {
#ifdef __AVX512BF16__
  int32_t two;
  std::memcpy(&two, row, sizeof two);
  return _mm512_dpbf16_ps(sums, (__m512bh)_mm512_loadu_si512(weights), (__m512bh)_mm512_set1_epi32(two));
#else
  float lanes[LANES];
  std::memcpy(lanes, &sums, sizeof lanes);
  for (int j = 1; j >= 0; --j) {
    const float number = with_bits(row[j].bits << 16);
    // A product of two such numbers is exact.
    for (int lane = 0; lane < LANES; ++lane) lanes[lane] += with_bits(weights[lane * 2 + j].bits << 16) * number;
  }
  std::memcpy(&sums, lanes, sizeof lanes);
  return sums;
#endif
}

// --- rows ---

// The nearest number, of two the even one; a NaN stays one.
inline void pack(const float* from, int64_t dim, BFloat16* to, float*) {
  for (int64_t k = 0; k < dim; ++k) {
    const uint32_t bits = bits_of(from[k]);
    to[k].bits = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
}

// The bits of the larger absolute value: they are in its order, and a NaN's are above all.
inline int32_t larger(int32_t most, float value) {
  const int32_t bits = bits_of(value) & 0x7fffffff;
  return bits > most ? bits : most;
}

// The last bits of the whole number next to `value * scale`: 1.5 * 2^23, added, leaves them there.
inline int32_t nearest(float value, float scale) { return bits_of(std::fma(value, scale, 12582912.0f)); }

// `about`: the row's scale, and what `ZERO` adds to each of its sums.
inline void pack(const float* from, int64_t dim, int8_t* to, float* about) {
  int32_t most = 0;
  for (int64_t k = 0; k < dim; ++k) most = larger(most, from[k]);
  float largest = with_bits(most);
  largest = largest < 1e-30f ? 1e-30f : largest;
  const float scale = 127.0f / largest;
  int32_t total = 0;
  for (int64_t k = 0; k < dim; ++k) {
    to[k] = static_cast<int8_t>(nearest(from[k], scale));
    total += to[k];
  }
  about[0] = largest;
  about[1] = with_bits(total * ZERO);
}

// Rows, written as float32 at their places, `(count, dim)`; `finish` packs them.
template <class Weight>
struct PackedRows {
  using Number = typename Weight::Number;
  // Of floats about a row.
  static constexpr int64_t ABOUT = 2;
  // Four and five rows with half as many panels. Six, and in `panels.h` any, are slower so than with one panel that is asked for in advance.
  static constexpr int FEW = 5 * FEW_ROWS / 3;

  float* places;
  int64_t count, dim;

  static int64_t size(int64_t count, int64_t dim) { return count * (dim + ABOUT + apart(dim) * sizeof(Number) / sizeof(float)); }
  // Rows do not meet in a cache.
  static int64_t apart(int64_t dim) { return dim + LINE / sizeof(Number); }

  float* at(int64_t row, int64_t column) const { return places + row * dim + column; }
  float* about(int64_t row) const { return places + count * dim + row * ABOUT; }
  Number* numbers(int64_t row) const { return reinterpret_cast<Number*>(about(count)) + row * apart(dim); }

  // By all threads.
  void finish(int64_t size) const {
#pragma omp for schedule(static)
    for (int64_t row = 0; row < size; ++row) pack(at(row, 0), dim, numbers(row), about(row));
  }
};

// --- products ---

// How sums begin, and what comes out of all parts'.
inline Integers begun(const Byte*, const float* about) { return filled(-bits_of(about[1])); }
inline Vector begun(const BFloat16*, const float*) { return filled(0.0f); }
inline Vector scaled(Vector sums, const float* scales, const float* about) { return sums * (load(scales) * filled(about[0])); }
inline Vector ended(const Byte*, Integers sums, const float* scales, const float* about) {
  return scaled(__builtin_convertvector(sums, Vector), scales, about);
}
inline Vector ended(const BFloat16*, Vector sums, const float*, const float*) { return sums; }

// Between two parts they are left as they are, where a part's number does not say otherwise.
template <class Weight, class Sums>
void resume(const Weight*, Sums& sums, const float* left) {
  std::memcpy(&sums, left, sizeof sums);
}
template <class Weight, class Sums>
Sums to_leave(const Weight*, const Sums& sums, const float*, bool) {
  return sums;
}

// Of a part: as many bytes as one in half precision has. Of what is added up before sums are left: all of it, or fewer.
template <class Weight>
constexpr int64_t DEEP = DEPTH * sizeof(Half) / sizeof(Weight);
template <class Weight>
constexpr int64_t BLOCK = DEEP<Weight>;

// Products of rows with a part of each panel. Sums are kept between the parts, numbers come out of the last. Meanwhile what lies `ahead` is
// asked for, as in `panels.h`.
template <int ROWS, int PANELS, class Weight>
void multiply(const PackedRows<Weight>& rows, int64_t start, int64_t k, Part<Weight> part, int64_t panels_apart, float* sums,
              int64_t sums_apart, const float* scales, const char* ahead, int64_t step) {
  using Sums = decltype(begun(part.weights, sums));
  constexpr int WIDTH = PANELS * VECTORS;
  constexpr int64_t IN_LANE = IN_A_LANE<Weight>;
  const typename Weight::Number* row_of[ROWS];
#pragma GCC unroll 64
  for (int row = 0; row < ROWS; ++row) row_of[row] = rows.numbers(start + row) + k;
  for (int64_t done = 0, end; done < part.depth; done = end) {
    end = part.depth - done < BLOCK<Weight> ? part.depth : done + BLOCK<Weight>;
    const bool first = k + done == 0, last = k + end == rows.dim;
    Sums sum[ROWS][WIDTH];
#pragma GCC unroll 64
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 64
      for (int v = 0; v < WIDTH; ++v)
        if (first)
          sum[row][v] = begun(part.weights, rows.about(start + row));
        else
          resume(part.weights, sum[row][v], sums + row * sums_apart + v * LANES);
    for (int64_t lane = done / IN_LANE; lane < end / IN_LANE; ++lane)
#pragma GCC unroll 64
      for (int panel = 0; panel < PANELS; ++panel) {
        if (PANELS == 1) ask_for_next(ahead + lane * step, step);
#pragma GCC unroll 64
        for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 64
          for (int v = 0; v < VECTORS; ++v) {
            Sums& one = sum[row][panel * VECTORS + v];
            one = add_products(one, part.weights + panel * panels_apart + (lane * COLUMNS + v * LANES) * IN_LANE, row_of[row] + lane * IN_LANE);
          }
      }
#pragma GCC unroll 64
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 64
      for (int v = 0; v < WIDTH; ++v) {
        float* place = sums + row * sums_apart + v * LANES;
        const auto left = to_leave(part.weights, sum[row][v], place, !first);
        if (last) {
          const float* scale = scales + v / VECTORS * panels_apart * static_cast<int64_t>(sizeof(Weight)) / static_cast<int64_t>(sizeof(float));
          const Vector product = ended(part.weights, left, scale + v % VECTORS * LANES, rows.about(start + row));
          std::memcpy(place, &product, sizeof product);
        } else {
          std::memcpy(place, &left, sizeof left);
        }
      }
  }
}

template <class Weight>
const float* scales_of(const Weight* panel, int64_t dim) {
  return reinterpret_cast<const float*>(panel + dim * COLUMNS);
}

// A panel's product with the first `count` rows.
template <class Weight>
void multiply_panel(const PackedRows<Weight>& rows, int64_t count, const Weight* panel, float* sums, int64_t sums_apart) {
  constexpr int64_t IN_LANE = IN_A_LANE<Weight>;
  for (int64_t k = 0; k < rows.dim; k += DEEP<Weight>) {
    const Part<Weight> part = part_of(panel, k, rows.dim, DEEP<Weight>);
    const char* next = reinterpret_cast<const char*>(part.weights + part.depth * COLUMNS);
    in_groups(count, next, part.depth / IN_LANE, COLUMNS * sizeof(float), [&](auto number, int64_t start, const char* ahead, int64_t step) {
      multiply<number.value, 1>(rows, start, k, part, 0, sums + start * sums_apart, sums_apart, scales_of(panel, rows.dim), ahead, step);
    });
  }
}

// The same of `FEW` at most with `TOGETHER` panels, `panels_apart`.
template <class Weight>
void multiply_few(const PackedRows<Weight>& rows, int64_t count, const Weight* panels, int64_t panels_apart, float* sums,
                  int64_t sums_apart) {
  for (int64_t k = 0; k < rows.dim; k += DEEP<Weight>) {
    const Part<Weight> part = part_of(panels, k, rows.dim, DEEP<Weight>);
    with_rows<PackedRows<Weight>::FEW>(count, [&](auto number) {
      constexpr int PANELS = number.value > FEW_ROWS ? TOGETHER / 2 : TOGETHER;
      for (int panel = 0; panel < TOGETHER; panel += PANELS) {
        const int64_t here = panel * panels_apart;
        multiply<number.value, PANELS>(rows, 0, k, {part.weights + here, part.depth}, panels_apart, sums + panel * COLUMNS, sums_apart,
                                       scales_of(panels + here, rows.dim), nullptr, 0);
      }
    });
  }
}

}  // namespace
