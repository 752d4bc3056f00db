// Products of rows with a frozen weight of whole numbers of 16 bits on a CPU, by instructions for bytes; `packed_panels.h` has what is common.
//
// Each row has a scale, and each of the weight's: their largest absolute value becomes 127 * 255. A number is `255 a + b`, two digits from
// -127 to 127, and the product of two second digits is left out, so that a sum is `255^2 sum(a a') + 255 sum(a b' + b a')`: whole for a part
// of a panel, and in float32 for the parts in their order. (`TwoDigitLinear` of `int8_linear.py` has the same numbers.)
//
// In a panel lie, for each four numbers of its 32 rows, their first digits and then their second ones, shape `(input_dim / 4, 2, 32, 4)`,
// unsigned as `packed_panels.h` has bytes; its 32 scales lie behind it.

#pragma once

#include "packed_panels.h"

namespace {

struct Digits {
  using Number = Digits;  // of a row: four first digits, then the second ones
  uint16_t bits;
};

template <>
constexpr int64_t IN_A_LANE<Digits> = 4;

// What a first digit counts.
constexpr float BASE = 255.0f;

// Of a product.
struct DigitSums {
  Integers first, second;
};

inline DigitSums add_products(DigitSums sums, const Digits* weights, const Digits* row) {
  const Byte* first = reinterpret_cast<const Byte*>(weights);
  const Byte* second = first + COLUMNS * IN_A_LANE<Digits>;
  const int8_t* row_first = reinterpret_cast<const int8_t*>(row);
  const int8_t* row_second = row_first + IN_A_LANE<Digits>;
  sums.first = add_products(sums.first, first, row_first);
  sums.second = add_products(add_products(sums.second, first, row_second), second, row_first);
  return sums;
}

// `about`: the row's scale, and what `ZERO` adds to each of its sums.
inline void pack(const float* from, int64_t dim, Digits* to, float* about) {
  constexpr int64_t TOGETHER = IN_A_LANE<Digits>;
  const float largest = largest_of(from, dim), scale = 127.0f * BASE / largest;
  int8_t* place = reinterpret_cast<int8_t*>(to);
  int32_t total_first = 0, total_second = 0;
  for (int64_t start = 0; start < dim; start += COLUMNS) {
    int8_t first[COLUMNS], second[COLUMNS];
    for (int64_t k = 0; k < COLUMNS; ++k) {
      const int16_t whole = static_cast<int16_t>(last_bits(from[start + k], scale));
      first[k] = static_cast<int8_t>(last_bits(whole, 1.0f / BASE));
      second[k] = static_cast<int8_t>(whole - static_cast<int16_t>(BASE) * first[k]);
      total_first += first[k];
      total_second += second[k];
    }
    for (int64_t k = 0; k < COLUMNS; k += TOGETHER, place += 2 * TOGETHER) {
      std::memcpy(place, first + k, TOGETHER);
      std::memcpy(place + TOGETHER, second + k, TOGETHER);
    }
  }
  about[0] = largest;
  about[1] = with_bits(total_first * ZERO);
  about[2] = with_bits((total_first + total_second) * ZERO);
}

inline DigitSums begun(const Digits*, const float* about) { return {filled(-bits_of(about[1])), filled(-bits_of(about[2]))}; }

inline void resume(DigitSums& sums, const float*) { sums = {filled(0), filled(0)}; }

inline Vector to_leave(const DigitSums& sums, const float* left, bool add) {
  const Vector sum = fused(__builtin_convertvector(sums.first, Vector), filled(BASE), __builtin_convertvector(sums.second, Vector));
  return add ? sum + load(left) : sum;
}

inline Vector ended(const Digits*, Vector sums, const float* scales, const float* about) { return sums * (load(scales) * filled(about[0])); }

}  // namespace
