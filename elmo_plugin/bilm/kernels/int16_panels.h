// Products of rows with a frozen weight of whole numbers of 16 bits on a CPU, two of which share a lane; `packed_panels.h` has what is common.
//
// Sums are whole within a block of 128 numbers, and in float32 over the blocks in their order. No sum is larger than the product of two
// Euclidean norms, so none passes 2^31 where a row is scaled so that its block of the largest norm has 32,750, and a weight's row so that none
// of its blocks has more than 65,532, nor a number more than 32,767: rounding adds less than six to a norm, and 65,538 * 32,756 < 2^31. The
// weight's scales lie behind a panel. (`int16_linear.py` has the same numbers.)

#pragma once

#include "packed_panels.h"

namespace {

struct Int16 {
  using Number = Int16;
  int16_t number;
};

template <>
constexpr int64_t BLOCK<Int16> = 128;

inline Integers add_products(Integers sums, const Int16* weights, const Int16* row) {
#ifdef __AVX512VNNI__
  int32_t two;
  std::memcpy(&two, row, sizeof two);
  // Weights last, so that they may be read by the instruction itself.
  return (Integers)_mm512_dpwssd_epi32((__m512i)sums, _mm512_set1_epi32(two), _mm512_loadu_si512(weights));
#else
  return add_one_by_one(sums, &weights->number, &row->number);
#endif
}

// The largest norm of a block; of less than 1e-15, squares would be too small for float32.
inline float largest_norm(const float* from, int64_t dim) {
  constexpr int64_t SUMS = 16;  // of squares, at a time
  int32_t most = 0;
  for (int64_t start = 0; start < dim; start += BLOCK<Int16>) {
    float squares[SUMS] = {};
    for (int64_t k = start; k < start + BLOCK<Int16> && k < dim; k += SUMS)
      for (int64_t j = 0; j < SUMS; ++j) squares[j] = std::fma(from[k + j], from[k + j], squares[j]);
    for (int64_t some = SUMS / 2; some > 0; some /= 2)
      for (int64_t j = 0; j < some; ++j) squares[j] += squares[j + some];
    most = larger(most, squares[0]);
  }
  const float norm = std::sqrt(with_bits(most));
  return norm < 1e-15f ? 1e-15f : norm;
}

// `about`: the row's scale.
inline void pack(const float* from, int64_t dim, Int16* to, float* about) {
  about[0] = largest_norm(from, dim);
  const float scale = 32750.0f / about[0];
  for (int64_t k = 0; k < dim; ++k) to[k].number = static_cast<int16_t>(nearest(from[k], scale));
}

inline Integers begun(const Int16*, const float*) { return filled(0); }

inline void resume(const Int16*, Integers& sums, const float*) { sums = filled(0); }

inline Vector to_leave(const Int16*, const Integers& sums, const float* left, bool add) {
  const Vector sum = __builtin_convertvector(sums, Vector);
  return add ? sum + load(left) : sum;
}

inline Vector ended(const Int16*, Vector sums, const float* scales, const float* about) { return scaled(sums, scales, about); }

}  // namespace
