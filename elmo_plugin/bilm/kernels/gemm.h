// GEMM of rows with panels of a frozen weight: the micro-kernels for vectors and for AMX, and the loops around them.
//
// A block of a panel stays in the L1 cache while all rows are multiplied by it, in groups whose sums fit the registers. The next block is prefetched
// meanwhile, so that arithmetic hides the time to read weights from memory. A small number of rows is multiplied by several panels at a time: one
// panel would give too few independent sums to hide the latency of an addition.

#pragma once

#include "formats.h"

namespace {

// MAX_ROWS: rows of a group. PASS: vectors of a panel that a group is multiplied by at a time. Their sums fill three quarters of the registers.
#if defined(__AVX512F__)
constexpr int MAX_ROWS = 12, PASS = 2;
#elif defined(__AVX2__)
constexpr int MAX_ROWS = 6, PASS = 2;
#else
constexpr int MAX_ROWS = 6, PASS = 4;
#endif
// Number of gates of an LSTM; rows are multiplied by the panels of all gates together.
constexpr int GATES = 4;

constexpr int panels_at_once(int rows) {
#if defined(__AVX512F__)
  return rows <= 3 ? 4 : rows <= 5 ? 2 : 1;
#else
  return rows == 1 ? 2 : 1;
#endif
}

constexpr int vectors_at_once(int rows) { return rows * panels_at_once(rows) * VECTORS <= MAX_ROWS * PASS ? VECTORS : PASS; }

// `rows`, rounded up to what an instruction multiplies together.
template <class Format>
constexpr int padded(int rows) {
  return (rows + Format::PAIR - 1) / Format::PAIR * Format::PAIR;
}

// Largest number of rows that are multiplied by several panels at a time: their sums with all vectors of a panel fit the registers.
template <class Format>
constexpr int FEW_ROWS = VECTORS > 2 ? 4 - Format::PAIR : 5;

// Bytes of a panel's lane.
constexpr int64_t LANE_BYTES = COLUMNS * sizeof(float);
// Lanes between two prefetches of the next block; blocks have a multiple of it.
constexpr int SOME_LANES = 8;
// A small number of rows takes so little time with a weight that the one to prefetch is this many bytes ahead.
constexpr int64_t BYTES_AHEAD = 4096;

// Prefetches the next `step` bytes at each call.
struct Prefetch {
  const char* first;
  int64_t step;

  void operator()(int64_t call, int64_t offset) const {
    const char* here = first + call * step + offset;
    for (int64_t k = 0; k < step; k += LINE) __builtin_prefetch(here + k, 0, 2);
  }
};

struct Panels {
  const float* first;
  // Distance between panels, in floats.
  int64_t stride;

  // The panels from this one on.
  Panels from(int64_t panel) const { return {first + panel * stride, stride}; }
};

// Multiplies `ROWS` rows by lanes `begin` to `end` of `PANELS` panels, of which it takes `WIDTH` vectors from vector `v` on. After the last lane
// `sums` holds the products; until then it holds unscaled sums, to which the next call adds. Every `EVERY` lanes it prefetches; 0 stands for never.
template <class Format, int ROWS, int PANELS, int WIDTH, int EVERY>
inline void micro_kernel(const Rows<Format>& rows, int64_t start, Panels panels, int64_t begin, int64_t end, int v, float* sums,
                         int64_t sums_stride, const Prefetch& prefetch) {
  const int64_t lanes = rows.lanes();
  const float* const first_row = rows.numbers(start, begin);
  // Known to the compiler for float32, so that one register addresses all rows.
  const int64_t row_stride = Rows<Format>::stride(rows.dim);
  // Where two rows are multiplied together, the last of an odd number is its own partner.
  constexpr bool IN_PAIRS = Format::PAIR == 2;
  constexpr int PADDED = padded<Format>(ROWS), PARTS = IN_PAIRS ? 2 : Format::ROW_LANES;
  const auto real = [](int row) { return row < ROWS ? row : ROWS - 1; };
  for (int64_t from = begin, to; from < end; from = to) {
    to = minimum(from + Format::SUM_LANES, end);
    typename Format::Sums sum[PADDED][PANELS][WIDTH];
    // Replaces the sums of two rows by those of both with half of the columns each, or back.
    const auto exchange = [&](const auto& half) {
      for (int row = 0; row < PADDED; row += 2)
        for (int panel = 0; panel < PANELS; ++panel)
          for (int w = 0; w < WIDTH; ++w) {
            auto &one = sum[row][panel][w], &other = sum[row + 1][panel][w];
            const auto first = half(one, other, 0), second = half(one, other, 1);
            one = first;
            other = second;
          }
    };
#pragma GCC unroll 16
    for (int row = 0; row < PADDED; ++row)
#pragma GCC unroll 4
      for (int panel = 0; panel < PANELS; ++panel)
#pragma GCC unroll 8
        for (int w = 0; w < WIDTH; ++w)
          sum[row][panel][w] = from == 0 ? Format::initial(rows.parameters(start + real(row)))
                                         : Format::reload(sums + real(row) * sums_stride + panel * COLUMNS + (v + w) * LANES);
    if constexpr (IN_PAIRS) exchange([](auto a, auto b, int half) { return interleaved(a, b, half); });
    const int64_t step = EVERY ? EVERY : to - from;
    for (int64_t first = from; first < to; first += step) {
      if (EVERY)
        for (int panel = 0; panel < PANELS; ++panel) prefetch((first - begin) / step, panel * panels.stride * sizeof(float));
#pragma GCC unroll 4
      for (int64_t lane = first; lane < first + step; lane += Format::PAIR) {
#pragma GCC unroll 4
        for (int panel = 0; panel < PANELS; ++panel)
#pragma GCC unroll 2
          for (int part = 0; part < PARTS; ++part) {
            typename Format::Weights weights[WIDTH];
#pragma GCC unroll 8
            for (int w = 0; w < WIDTH; ++w)
              weights[w] = Format::weights(panels.from(panel).first + lane * COLUMNS + (v + w) * LANES, part);
#pragma GCC unroll 16
            for (int row = IN_PAIRS ? part : 0; row < PADDED; row += Format::PAIR)
#pragma GCC unroll 8
              for (int w = 0; w < WIDTH; ++w) {
                auto& own = sum[row][panel][w];
                const float* const numbers = first_row + lane * Format::ROW_LANES;
                if constexpr (IN_PAIRS)
                  own = Format::add(own, weights[w], numbers + (row - part) * row_stride, numbers + real(row - part + 1) * row_stride);
                else
                  own = Format::add(own, weights[w], numbers + row * row_stride + part);
              }
          }
      }
    }
    if constexpr (IN_PAIRS) exchange([](auto a, auto b, int odd) { return every_other(a, b, odd); });
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
      for (int panel = 0; panel < PANELS; ++panel)
#pragma GCC unroll 8
        for (int w = 0; w < WIDTH; ++w) {
          float* place = sums + row * sums_stride + panel * COLUMNS + (v + w) * LANES;
          const auto partial = Format::partial(sum[row][panel][w], place, from == 0);
          const float* scales = panels.from(panel).first + lanes * COLUMNS + (v + w) * LANES;
          if (to == lanes)
            store(place, Format::scaled(partial, scales, rows.parameters(start + row)));
          else
            store(place, partial);
        }
  }
}

// Calls `function` with `count` as a compile-time constant.
template <int ROWS, class Function>
inline void with_row_count(int64_t count, const Function& function) {
  if constexpr (ROWS > 0) {
    if (count == ROWS)
      function(std::integral_constant<int, ROWS>());
    else
      with_row_count<ROWS - 1>(count, function);
  }
}

// Number of groups, of about the same size, into which rows are divided.
inline int64_t num_groups(int64_t count) { return (count + MAX_ROWS - 1) / MAX_ROWS; }

// Multiplies the first `count` rows by a block of one panel, lanes `begin` to `end`, and prefetches the block at `next`.
template <class Format>
void multiply_block(const Rows<Format>& rows, int64_t count, Panels panel, int64_t begin, int64_t end, float* sums, int64_t sums_stride,
                    const float* next) {
  const int64_t groups = num_groups(count), step = SOME_LANES * LANE_BYTES / groups;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t start = group * count / groups, size = (group + 1) * count / groups - start;
    const Prefetch prefetch{reinterpret_cast<const char*>(next) + group * ((end - begin) / SOME_LANES) * step, step};
    with_row_count<MAX_ROWS>(size, [&](auto number) {
      constexpr int ROWS = decltype(number)::value, WIDTH = vectors_at_once(padded<Format>(ROWS));
      float* place = sums + start * sums_stride;
      micro_kernel<Format, ROWS, 1, WIDTH, SOME_LANES>(rows, start, panel, begin, end, 0, place, sums_stride, prefetch);
      for (int v = WIDTH; v < VECTORS; v += WIDTH)
        micro_kernel<Format, ROWS, 1, WIDTH, 0>(rows, start, panel, begin, end, v, place, sums_stride, prefetch);
    });
  }
}

// --- AMX: a tile has 16 rows of 64 bytes; one instruction multiplies it by a tile of 16 columns ---

#if defined(__AMX_TILE__)

// Least number of rows for which tiles multiply int8; vectors multiply fewer.
constexpr int64_t MIN_TILED_ROWS = 4;

// Configures the eight tiles of a thread; the destructor releases them.
struct Tiles {
  Tiles() {
    struct alignas(LINE) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } configuration;
    for (int tile = 0; tile < 8; ++tile) {
      configuration.bytes[tile] = LINE;
      configuration.rows[tile] = 16;
    }
    _tile_loadconfig(&configuration);
  }
  ~Tiles() { _tile_release(); }
};

// Multiplies 16 rows, or 32 if `TWO`, by a panel. Tiles 0 to 3 hold the sums.
template <class Format, bool TWO>
inline void tile_kernel(const float* rows, int64_t row_stride, const float* panel, int64_t lanes, float* to) {
  _tile_zero(0);
  _tile_zero(1);
  if (TWO) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t lane = 0; lane < lanes; lane += 16) {
    _tile_loadd(6, panel + lane * COLUMNS, COLUMNS * sizeof(float));
    _tile_loadd(7, panel + lane * COLUMNS + 16, COLUMNS * sizeof(float));
    _tile_loadd(4, rows + lane, row_stride * sizeof(float));
    if (TWO) _tile_loadd(5, rows + 16 * row_stride + lane, row_stride * sizeof(float));
    if constexpr (Format::PER_LANE == 4) {
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 4, 7);
      if (TWO) {
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
      }
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if (TWO) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  constexpr int64_t BYTES = COLUMNS * sizeof(float);
  _tile_stored(0, to, BYTES);
  _tile_stored(1, to + 16, BYTES);
  if (TWO) {
    _tile_stored(2, to + 16 * COLUMNS, BYTES);
    _tile_stored(3, to + 16 * COLUMNS + 16, BYTES);
  }
}

// Multiplies by `PANELS` panels with tiles.
template <int PANELS, class Format>
void multiply_tiles(const Rows<Format>& rows, int64_t count, Panels panels, float* sums, int64_t sums_stride) {
  const int64_t lanes = rows.lanes(), stride = Rows<Format>::stride(rows.dim);
  alignas(LINE) float products[32 * COLUMNS];
  for (int panel = 0; panel < PANELS; ++panel) {
    const float* const here = panels.from(panel).first;
    for (int64_t start = 0; start < count; start += 32) {
      const int64_t size = minimum(count - start, 32);
      if (size > 16)
        tile_kernel<Format, true>(rows.numbers(start), stride, here, lanes, products);
      else
        tile_kernel<Format, false>(rows.numbers(start), stride, here, lanes, products);
      for (int64_t row = 0; row < size; ++row)
        for (int v = 0; v < VECTORS; ++v) {
          const float* const parameters = rows.parameters(start + row);
          const auto sum = load<typename Format::Sums>(products + row * COLUMNS + v * LANES) + Format::initial(parameters);
          store(sums + (start + row) * sums_stride + panel * COLUMNS + v * LANES, Format::scaled(sum, here + lanes * COLUMNS + v * LANES, parameters));
        }
    }
  }
}

#else

struct Tiles {};

#endif

// --- the loops ---

// Multiplies the first `count` rows by `PANELS` panels. The products of one row with all panels are stored side by side.
template <int PANELS, class Format>
void multiply(const Rows<Format>& rows, int64_t count, Panels panels, float* sums, int64_t sums_stride) {
  const int64_t lanes = rows.lanes();
#if defined(__AMX_TILE__)
  // Vectors would sum bfloat16 in another order than tiles do. Sums of int8 are exact in any order, and faster with vectors for a few rows.
  if constexpr (Format::TILES)
    if (Format::SCALES == 0 || (count >= MIN_TILED_ROWS && lanes % 16 == 0)) return multiply_tiles<PANELS>(rows, count, panels, sums, sums_stride);
#endif
  // Blocks in the outer loop: a block of all rows stays in the L2 cache while all panels are multiplied by it.
  for (int64_t begin = 0; begin < lanes; begin += Format::CACHE_LANES) {
    const int64_t end = minimum(begin + Format::CACHE_LANES, lanes);
    if (PANELS > 1 && count <= FEW_ROWS<Format>) {
      with_row_count<FEW_ROWS<Format>>(count, [&](auto number) {
        constexpr int ROWS = decltype(number)::value, PADDED = padded<Format>(ROWS);
        constexpr int AT_ONCE = panels_at_once(PADDED) < PANELS ? panels_at_once(PADDED) : PANELS;
        // One row is multiplied by four panels with AVX-512: the processor itself prefetches so many streams well.
        constexpr int EVERY = ROWS == 1 && AT_ONCE > 2 ? 0 : Format::PAIR;
        for (int panel = 0; panel < PANELS; panel += AT_ONCE) {
          const Panels some = panels.from(panel);
          const Prefetch prefetch{reinterpret_cast<const char*>(some.first + begin * COLUMNS) + BYTES_AHEAD, Format::PAIR * LANE_BYTES};
          float* const place = sums + panel * COLUMNS;
          micro_kernel<Format, ROWS, AT_ONCE, vectors_at_once(PADDED), EVERY>(rows, 0, some, begin, end, 0, place, sums_stride, prefetch);
        }
      });
      continue;
    }
    for (int panel = 0; panel < PANELS; ++panel) {
      const float* next = panel + 1 < PANELS ? panels.from(panel + 1).first + begin * COLUMNS : panels.first + end * COLUMNS;
      multiply_block(rows, count, panels.from(panel), begin, end, sums + panel * COLUMNS, sums_stride, next);
    }
  }
}

// Multiplies the first `count` rows by 32 rows of a row-major weight, which it packs block by block, so that the weight needs no packed copy in
// memory. With dozens of rows the packing takes a few percent of the time.
inline void multiply_row_major(const Rows<Float32>& rows, int64_t count, const float* weight, float* sums, int64_t sums_stride) {
  alignas(LINE) float part[Float32::CACHE_LANES * COLUMNS];
  for (int64_t begin = 0; begin < rows.dim; begin += Float32::CACHE_LANES) {
    const int64_t end = minimum(begin + Float32::CACHE_LANES, rows.dim);
    pack_panel(weight + begin, rows.dim, end - begin, part);
    const float* next = weight + COLUMNS * (rows.dim + begin);
    multiply_block(rows, count, {part - begin * COLUMNS, 0}, begin, end, sums, sums_stride, next);
  }
}

}  // namespace
