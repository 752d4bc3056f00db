// Vectors of 4-byte lanes, as wide as the instruction set allows; packing of weights into panels; elementwise functions.

#pragma once

#include "library.h"

#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace {

// Columns of a panel, the packed block of a weight that the GEMM reads. It holds 32 rows, transposed: a vector has weights of several outputs.
constexpr int64_t COLUMNS = 32;
// Bytes of a cache line.
constexpr int64_t LINE = 64;

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
// Vectors in a row of a panel, which has 32 columns.
constexpr int VECTORS = COLUMNS / LANES;

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));

inline Vector broadcast(float value) { return value - Vector{}; }
inline Integers broadcast(int32_t value) { return value - Integers{}; }

template <class Value = Vector>
inline Value load(const float* place) {
  Value value;
  memcpy(&value, place, sizeof value);
  return value;
}

template <class Value>
inline void store(float* place, const Value& value) {
  memcpy(place, &value, sizeof value);
}

// `a * b + c`, rounded once.
inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (Vector)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  for (int lane = 0; lane < LANES; ++lane) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return c;
#endif
}

// Stops the compiler from doing all multiplications before the additions, which would spill registers.
template <class Sums>
inline Sums in_order(Sums sums) {
#if defined(__x86_64__)
  asm volatile("" : "+v"(sums));
#elif defined(__ARM_NEON)
  asm volatile("" : "+w"(sums));
#endif
  return sums;
}

// Multiplies the two int16 in each lane of `a` by those of `b`, and adds both products to the lane of `sums`.
inline Integers add_pairs(Integers sums, Integers a, Integers b) {
#if defined(__AVX512VNNI__)
  return (Integers)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)b, (__m512i)a);
#elif defined(__AVX512BW__)
  return sums + (Integers)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__)
  return (Integers)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)b, (__m256i)a);
#elif defined(__AVX2__)
  return sums + (Integers)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__ARM_NEON)
  const int16x4_t pair = vget_low_s16((int16x8_t)a);  // all lanes of `a` are the same
  sums = (Integers)vmlal_lane_s16(vmlal_lane_s16((int32x4_t)sums, vmovn_s32((int32x4_t)b), pair, 0), vshrn_n_s32((int32x4_t)b, 16), pair, 1);
  return in_order(sums);
#else
  return sums + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

inline int32_t bits_of(float value) {
  int32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float with_bits(int32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

#if defined(__ARM_NEON)

// Interleaves the lanes of `a` and `b`, and returns the first or the second half of them.
template <class Value>
inline Value interleaved(Value a, Value b, int half) {
  return (Value)(half ? vzip2q_s32((int32x4_t)a, (int32x4_t)b) : vzip1q_s32((int32x4_t)a, (int32x4_t)b));
}

// Returns the even or the odd lanes of `a`, then those of `b`.
template <class Value>
inline Value every_other(Value a, Value b, int odd) {
  return (Value)(odd ? vuzp2q_s32((int32x4_t)a, (int32x4_t)b) : vuzp1q_s32((int32x4_t)a, (int32x4_t)b));
}

inline int8x16_t two_lanes(const float* row, const float* next_row) { return (int8x16_t)vcombine_f32(vld1_f32(row), vld1_f32(next_row)); }

#endif

#if defined(__clang__)
#define SHUFFLE(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLE(A, B, ...) __builtin_shuffle(A, B, Integers{__VA_ARGS__})
#endif

// Exchanges each second block of `SIZE` lanes of `one` with the block before it of `other`.
template <int SIZE, int... LANE>
inline void swap_blocks(Vector& one, Vector& other, std::integer_sequence<int, LANE...>) {
  const Vector before = one;
  one = SHUFFLE(before, other, (LANE & SIZE ? LANES + LANE - SIZE : LANE)...);
  other = SHUFFLE(before, other, (LANE & SIZE ? LANES + LANE : LANE + SIZE)...);
}

// Swaps the off-diagonal blocks of each size, from `SIZE` x `SIZE` to half the matrix.
template <int SIZE>
inline void transpose(Vector* rows) {
  if constexpr (SIZE < LANES) {
#pragma GCC unroll 16
    for (int row = 0; row < LANES; ++row)
      if (!(row & SIZE)) swap_blocks<SIZE>(rows[row], rows[row + SIZE], std::make_integer_sequence<int, LANES>());
    transpose<2 * SIZE>(rows);
  }
}

// Transposes `LANES` x `LANES` lanes. The starts of the rows that it reads are `stride` lanes apart, those that it writes `to_stride`.
inline void transpose(const float* from, int64_t stride, float* to, int64_t to_stride = COLUMNS) {
  Vector rows[LANES];
#pragma GCC unroll 16
  for (int row = 0; row < LANES; ++row) rows[row] = load(from + row * stride);
  transpose<1>(rows);
#pragma GCC unroll 16
  for (int column = 0; column < LANES; ++column) store(to + column * to_stride, rows[column]);
}

// Packs 32 rows of a weight into a panel: the first `lanes` lanes of each. The rows' starts are `stride` lanes apart.
inline void pack_panel(const float* rows, int64_t stride, int64_t lanes, float* panel) {
  const int64_t whole = lanes / LANES * LANES;
  // The lanes of a few rows at a time: the starts of 32 rows may fall into one cache set.
  for (int v = 0; v < VECTORS; ++v)
    for (int64_t lane = 0; lane < whole; lane += LANES) transpose(rows + v * LANES * stride + lane, stride, panel + lane * COLUMNS + v * LANES);
  for (int64_t lane = whole; lane < lanes; ++lane)
    for (int64_t row = 0; row < COLUMNS; ++row) panel[lane * COLUMNS + row] = rows[row * stride + lane];
}

// --- elementwise functions; fused multiply-adds are written out, so that every processor gives the same bits ---

// Computes e^x to about the last bit, as 2^n e^r with x = n log 2 + r. e^r is a polynomial from the Cephes library.
inline float exponential(float x) {
  // Comparisons keep a NaN; `fmin` and `fmax` would drop it.
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  // Adding 1.5 * 2^23 rounds to the nearest integer, and moves it into the low bits.
  const float moved = __builtin_fmaf(x, 1.44269504f, 12582912.0f), n = moved - 12582912.0f;
  float r = __builtin_fmaf(n, -0.693359375f, x);
  r = __builtin_fmaf(n, 2.12194440e-4f, r);
  float p = __builtin_fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = __builtin_fmaf(p, r, 8.3334519073e-3f);
  p = __builtin_fmaf(p, r, 4.1665795894e-2f);
  p = __builtin_fmaf(p, r, 1.6666665459e-1f);
  p = __builtin_fmaf(p, r, 5.0000001201e-1f);
  p = __builtin_fmaf(p, r * r, r + 1.0f);
  return p * with_bits(static_cast<int32_t>((static_cast<uint32_t>(bits_of(moved)) + 127) << 23));
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

inline float hyperbolic_tangent(float x) { return 2.0f / (1.0f + exponential(-2.0f * x)) - 1.0f; }

inline float clamp(float x, float clip) {
  x = x > clip ? clip : x;
  return x < -clip ? -clip : x;
}

// Overwrites the pre-activations with the gates' activations, and `cell` with the new cell. Returns the gated output `sigmoid(o) tanh(c)`.
inline float lstm_gates(float& i, float& f, float& g, float& o, float& cell, float clip) {
  i = sigmoid(i);
  f = sigmoid(f);
  g = hyperbolic_tangent(g);
  o = sigmoid(o);
  cell = clamp(__builtin_fmaf(f, cell, i * g), clip);
  return o * hyperbolic_tangent(cell);
}

}  // namespace
