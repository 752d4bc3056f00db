// The number formats of the GEMM: how input rows and a frozen weight are stored, multiplied and summed. `tests/bilm/kernels/number_formats.py`
// defines each in PyTorch.
//
// A panel, a packed block of a weight, consists of lanes of four bytes: one float32, two int16, two bfloat16 or four int8. The order of a sum depends
// on the row's width alone. So a row's result is bitwise identical for any number of rows and threads, and in every variant of the library.
//
// Float32: 256 products at a time are summed, and these sums are added.
//
// Int16: each input row and each weight row has a scale. Blocks of 128 products are summed in int32, the sums of blocks in float32. No int32
// overflows, since a sum is at most the product of two Euclidean norms (Cauchy-Schwarz). An input row is scaled so that the largest norm of its
// blocks is 32,750. A weight row is scaled so that no block's norm exceeds 65,532 and no number exceeds 32,767. Rounding adds less than six to a
// norm, and 65,538 * 32,756 < 2^31.
//
// Int8: each row is scaled so that its largest absolute value is 127. Weights are stored as unsigned bytes with a zero point of 128, since x86
// multiplies unsigned by signed bytes. Sums are int32 and exact.
//
// BFloat16: input rows and weights are rounded to bfloat16, multiplied by AVX512-BF16, AMX tiles or ARM's BFMMLA, and summed in float32.

#pragma once

#include "vectors.h"

namespace {

// Returns the larger of `magnitude` and the magnitude of `value` (its bits without the sign). They sort like absolute values, with NaN the largest.
inline int32_t larger_magnitude(int32_t magnitude, float value) {
  const int32_t bits = bits_of(value) & 0x7fffffff;
  return bits > magnitude ? bits : magnitude;
}

// Rounds `value * scale` to an integer, in the low bits of the result: adding 1.5 * 2^23 moves it there.
inline int32_t nearest(float value, float scale) { return bits_of(__builtin_fmaf(value, scale, 12582912.0f)); }

#if defined(__AMX_TILE__)
constexpr bool HAS_TILES = true;
#else
constexpr bool HAS_TILES = false;
#endif

// What formats have in common unless they say otherwise.
struct AnyFormat {
  // ROW_LANES: lanes of an input row that are multiplied by one lane of a panel. PAIR: 2 if an instruction multiplies two lanes of two rows by those of
  // two columns, as those of ARM for matrices do.
  static constexpr int ROW_LANES = 1, PAIR = 1;
  // Whether AMX tiles multiply this format.
  static constexpr bool TILES = false;
};

struct FloatSums : AnyFormat {
  // CACHE_LANES: lanes of a panel that stay in the L1 cache while all rows are multiplied by them. SUM_LANES: lanes that are summed in a register.
  static constexpr int64_t CACHE_LANES = 256, SUM_LANES = 256;
  // PARAMETERS: floats stored with each input row, such as its scale. SCALES: floats stored behind each panel, a scale for each column.
  static constexpr int64_t PARAMETERS = 0, SCALES = 0;
  using Sums = Vector;
  using Weights = Vector;

  // Sums that begin a row, given its parameters, and those that begin another SUM_LANES lanes, given the sums of the lanes before.
  static Sums initial(const float*) { return Sums{}; }
  static Sums reload(const float*) { return Sums{}; }
  static Vector partial(Sums sums, const float* before, bool first) { return first ? sums : sums + load(before); }
  static Vector scaled(Vector sums, const float*, const float*) { return sums; }
};

struct Float32 : FloatSums {
  // Weights in a lane of a panel.
  static constexpr int PER_LANE = 1;

  static Weights weights(const float* panel, int) { return load(panel); }
  static Sums add(Sums sums, Weights weights, const float* row) { return multiply_add(broadcast(*row), weights, sums); }

  static void pack(const float* from, int64_t dim, float* to, float*) { memcpy(to, from, dim * sizeof(float)); }
  // Converts 32 packed numbers to float32.
  static void unpack(const float* from, float* to) { memcpy(to, from, COLUMNS * sizeof(float)); }
  // Packs 32 numbers as one row of a panel's lanes.
  static void pack_row(const float* from, float* panel, int64_t row) { memcpy(panel + row * COLUMNS, from, COLUMNS * sizeof(float)); }
};

struct IntegerSums : AnyFormat {
  static constexpr int64_t CACHE_LANES = 128, SCALES = COLUMNS;
  using Sums = Integers;
  using Weights = Integers;

  static Weights weights(const float* panel, int) { return load<Integers>(panel); }
  static Vector scaled(Vector sums, const float* scales, const float* parameters) { return sums * (load(scales) * broadcast(parameters[0])); }
};

struct Int16 : IntegerSums {
  static constexpr int PER_LANE = 2;
  static constexpr int64_t SUM_LANES = 64, PARAMETERS = 1;

  static Sums add(Sums sums, Weights weights, const float* row) { return add_pairs(sums, broadcast(bits_of(*row)), weights); }
  static Sums initial(const float*) { return Sums{}; }
  static Sums reload(const float*) { return Sums{}; }
  static Vector partial(Sums sums, const float* before, bool first) {
    return FloatSums::partial(__builtin_convertvector(sums, Vector), before, first);
  }

  static void pack(const float* from, int64_t dim, float* to, float* parameters) {
    int16_t* numbers = reinterpret_cast<int16_t*>(to);
    constexpr int64_t NUMBERS = SUM_LANES * PER_LANE, SUMS = 16;
    int32_t magnitude = 0;
    for (int64_t start = 0; start < dim; start += NUMBERS) {
      float squares[SUMS] = {};
      for (int64_t k = start; k < start + NUMBERS && k < dim; k += SUMS)
        for (int64_t j = 0; j < SUMS; ++j) squares[j] = __builtin_fmaf(from[k + j], from[k + j], squares[j]);
      for (int64_t some = SUMS / 2; some > 0; some /= 2)
        for (int64_t j = 0; j < some; ++j) squares[j] += squares[j + some];
      magnitude = larger_magnitude(magnitude, squares[0]);
    }
    // At least 1e-15: squares of smaller numbers underflow in float32.
    const float norm = __builtin_sqrtf(with_bits(magnitude));
    parameters[0] = norm < 1e-15f ? 1e-15f : norm;
    const float scale = 32750.0f / parameters[0];
    for (int64_t k = 0; k < dim; ++k) numbers[k] = static_cast<int16_t>(nearest(from[k], scale));
  }
};

struct Int8 : IntegerSums {
  static constexpr int PER_LANE = 4;
  static constexpr int64_t SUM_LANES = CACHE_LANES, PARAMETERS = 2;
  static constexpr bool TILES = HAS_TILES;
#if defined(__ARM_FEATURE_DOTPROD) && !defined(__ARM_FEATURE_MATMUL_INT8)
  // The bytes become signed when they are loaded.
  static constexpr int32_t ZERO_POINT = 0;
#else
  static constexpr int32_t ZERO_POINT = 128;
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
  static Sums add(Sums sums, Weights weights, const float* row) {
#if defined(__AVX512VNNI__)
    return (Integers)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)weights, (__m512i)broadcast(bits_of(*row)));
#else
    return (Integers)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)weights, (__m256i)broadcast(bits_of(*row)));
#endif
  }
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  static constexpr int PAIR = 2;
  static Weights weights(const float* panel, int half) { return interleaved(load<Integers>(panel), load<Integers>(panel + COLUMNS), half); }
  static Sums add(Sums sums, Weights weights, const float* row, const float* next_row) {
    return in_order((Sums)vusmmlaq_s32((int32x4_t)sums, (uint8x16_t)weights, two_lanes(row, next_row)));
  }
#elif defined(__ARM_FEATURE_DOTPROD)
  static Weights weights(const float* panel, int) { return load<Integers>(panel) ^ broadcast(static_cast<int32_t>(0x80808080)); }
  static Sums add(Sums sums, Weights weights, const float* row) {
    return in_order((Sums)vdotq_s32((int32x4_t)sums, (int8x16_t)weights, (int8x16_t)broadcast(bits_of(*row))));
  }
#else
  // Without VNNI the even and the odd bytes of a lane become two pairs of int16. `pack` stores a row's int8 as int16 in the same order.
  static constexpr int ROW_LANES = 2;
  static Weights weights(const float* panel, int odd) {
    typedef uint16_t Pairs __attribute__((vector_size(4 * LANES)));
    const Pairs bytes = load<Pairs>(panel);
    return (Weights)(odd ? bytes >> 8 : bytes & 0xff);
  }
  static Sums add(Sums sums, Weights weights, const float* row) { return in_order(add_pairs(sums, broadcast(bits_of(*row)), weights)); }
#endif

  static Sums initial(const float* parameters) { return broadcast(-bits_of(parameters[1])); }
  static Sums reload(const float* before) { return load<Integers>(before); }
  static Integers partial(Sums sums, const float*, bool) { return sums; }
  static Vector scaled(Integers sums, const float* scales, const float* parameters) {
    return IntegerSums::scaled(__builtin_convertvector(sums, Vector), scales, parameters);
  }

  // Stores two parameters of a row: its largest absolute value, and what the zero point of the weights adds to each of the row's sums.
  static void pack(const float* from, int64_t dim, float* to, float* parameters) {
    int32_t magnitude = 0;
    for (int64_t k = 0; k < dim; ++k) magnitude = larger_magnitude(magnitude, from[k]);
    float largest = with_bits(magnitude);
    largest = largest < 1e-30f ? 1e-30f : largest;
    const float scale = 127.0f / largest;
    int32_t total = 0;
    if (ROW_LANES == 1) {
      int8_t* numbers = reinterpret_cast<int8_t*>(to);
      for (int64_t k = 0; k < dim; ++k) {
        numbers[k] = static_cast<int8_t>(nearest(from[k], scale));
        total += numbers[k];
      }
    } else {
      int16_t* numbers = reinterpret_cast<int16_t*>(to);
      for (int64_t k = 0; k < dim; k += PER_LANE) {
        for (int64_t j = 0; j < PER_LANE; ++j) {
          const int8_t number = static_cast<int8_t>(nearest(from[k + j], scale));
          numbers[k + j % 2 * 2 + j / 2] = number;
          total += number;
        }
      }
    }
    parameters[0] = largest;
    parameters[1] = with_bits(total * ZERO_POINT);
  }
};

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HAS_BFLOAT16

struct BFloat16 : FloatSums {
  static constexpr int PER_LANE = 2;
  static constexpr bool TILES = HAS_TILES;

#if defined(__AVX512BF16__)
  static Weights weights(const float* panel, int) { return load(panel); }
  static Sums add(Sums sums, Weights weights, const float* row) {
    return (Vector)_mm512_dpbf16_ps((__m512)sums, (__m512bh)broadcast(bits_of(*row)), (__m512bh)weights);
  }
#else
  static constexpr int PAIR = 2;
  static Weights weights(const float* panel, int half) { return interleaved(load(panel), load(panel + COLUMNS), half); }
  static Sums add(Sums sums, Weights weights, const float* row, const float* next_row) {
    return in_order((Vector)vbfmmlaq_f32((float32x4_t)sums, (bfloat16x8_t)weights, (bfloat16x8_t)two_lanes(row, next_row)));
  }
#endif

  static void pack(const float* from, int64_t dim, float* to, float*) {
    for (int64_t k = 0; k < dim; k += 2 * LANES) {
      const Vector low = load(from + k), high = load(from + k + LANES);
#if defined(__AVX512BF16__)
      store(to + k / PER_LANE, _mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
#else
      store(to + k / PER_LANE, vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)low), (float32x4_t)high));
#endif
    }
  }

  static void unpack(const float* from, float* to) {
    uint16_t numbers[COLUMNS];
    memcpy(numbers, from, sizeof numbers);
    for (int j = 0; j < COLUMNS; ++j) to[j] = with_bits(static_cast<int32_t>(static_cast<uint32_t>(numbers[j]) << 16));
  }

  static void pack_row(const float* from, float* panel, int64_t row) {
    float* const lanes = panel + row / PER_LANE * COLUMNS;
#if defined(__AVX512BF16__)
    const __mmask32 half = row % 2 ? 0xaaaaaaaa : 0x55555555;
    for (int j = 0; j < COLUMNS; j += LANES) {
      const __m512i numbers = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)load(from + j)));
      _mm512_mask_storeu_epi16(lanes + j, half, row % 2 ? _mm512_slli_epi32(numbers, 16) : numbers);
    }
#else
    float packed[COLUMNS / PER_LANE];
    pack(from, COLUMNS, packed, nullptr);
    for (int j = 0; j < COLUMNS; ++j) reinterpret_cast<uint16_t*>(lanes)[PER_LANE * j + row % 2] = reinterpret_cast<uint16_t*>(packed)[j];
#endif
  }
};

#endif

// Input rows of a product. The caller writes them as float32 at `data`, shape `(count, dim)`, and `pack` writes the converted rows behind them.
// Float32 needs no packing: rows are multiplied where the caller writes them, in blocks of BLOCK numbers of all rows, so that those which are
// multiplied together are near each other in memory.
template <class Format>
struct Rows {
  static constexpr bool PACKED = Format::PER_LANE > 1;
  // Rows for which memory is reserved together: AMX tiles read whole groups of 32 rows.
  static constexpr int64_t PADDING = Format::TILES ? 32 : 1;
  static constexpr int64_t BLOCK = Float32::CACHE_LANES;

  float* data;
  int64_t count, dim;

  int64_t lanes() const { return dim / Format::PER_LANE; }
  // Distance between rows, in lanes: one cache line more than a row (or its block) has, so that rows fall into different cache sets.
  static int64_t stride(int64_t dim) { return (PACKED ? dim / Format::PER_LANE * Format::ROW_LANES : BLOCK) + LINE / 4; }
  static int64_t size(int64_t count, int64_t dim) {
    if (!PACKED) return (dim + BLOCK - 1) / BLOCK * count * stride(dim);
    return round_up(count * (dim + Format::PARAMETERS), LINE / 4) + round_up(count, PADDING) * stride(dim);
  }

  float* at(int64_t row, int64_t column) const {
    return PACKED ? data + row * dim + column : data + (column / BLOCK * count + row) * stride(dim) + column % BLOCK;
  }
  float* parameters(int64_t row) const { return data + count * dim + row * Format::PARAMETERS; }
  // Address from which lane `begin` of the row, and those after it in its block, are indexed by their number.
  float* numbers(int64_t row, int64_t begin = 0) const {
    if (!PACKED) return at(row, begin) - begin;
    return data + round_up(count * (dim + Format::PARAMETERS), LINE / 4) + row * stride(dim);
  }

  // Writes `size` numbers of a row, from `column` on.
  void write(int64_t row, int64_t column, const float* from, int64_t size) const {
    for (int64_t part; size > 0; size -= part, column += part, from += part) {
      part = PACKED ? size : minimum(size, BLOCK - column % BLOCK);
      memcpy(at(row, column), from, part * sizeof(float));
    }
  }

  // Writes 32 numbers of a row, from `column` on, and packs them unless the row has parameters, which depend on all its numbers: then `pack` does.
  void set(int64_t row, int64_t column, const float* from) const {
    if constexpr (Format::PARAMETERS > 0)
      memcpy(at(row, column), from, COLUMNS * sizeof(float));
    else
      Format::pack(from, COLUMNS, PACKED ? numbers(row) + column / Format::PER_LANE : at(row, column), nullptr);
  }

  void pack(int64_t row) const {
    if constexpr (PACKED) Format::pack(at(row, 0), dim, numbers(row), parameters(row));
  }

  // Writes a whole row, packed.
  void load(int64_t row, const float* from) const {
    if constexpr (PACKED)
      Format::pack(from, dim, numbers(row), parameters(row));
    else
      write(row, 0, from, dim);
  }
};

}  // namespace
