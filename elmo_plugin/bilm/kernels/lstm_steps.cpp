// All that is elementwise in one LSTM step on a CPU, and in its gradient: `triton_kernels.py` in C++.
//
// Matrices have rows of `width` columns, those of the gates `i, f, g, o` of four times as many. Sums are in float32, whatever is read
// and written. A column is computed in the same way wherever it stands, so a row's bits do not depend on the rows beside it.
// `compiled.py` has this compiled where it runs; the loops are written so that compilers turn them into the processor's vectors.

#include "gates.h"

namespace {

struct BFloat16 {
  uint16_t bits;
};

inline float read(const float* place) { return *place; }

inline float read(const BFloat16* place) {
  const uint32_t bits = static_cast<uint32_t>(place->bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void write(float* place, float value) { *place = value; }

// To the nearest, of two the even one; a NaN stays one.
inline void write(BFloat16* place, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  place->bits = static_cast<uint16_t>(value != value ? 0x7fc0 : rounded);
}

// What a thread takes at a time; of fewer than so many, to wake the others takes longer (one row of 4,096: 28 us, alone 17).
constexpr int64_t BLOCK = 512, LEAST_SHARED = 16;

template <class Body>
void over_blocks(int64_t size, int64_t width, int threads, const Body& body) {
  const int64_t blocks = (width + BLOCK - 1) / BLOCK;
#pragma omp parallel for collapse(2) num_threads(threads) if (threads > 1 && size * blocks >= LEAST_SHARED)
  for (int64_t row = 0; row < size; ++row) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t end = (block + 1) * BLOCK;
      body(row, block * BLOCK, end < width ? end : width);
    }
  }
}

template <class Product, class Gated>
void forward(const Product* products, const float* addend, float* cell, Gated* gated, float* activations, float* new_cell,
             float clip, int64_t addend_stride, int64_t size, int64_t width, int threads) {
  over_blocks(size, width, threads, [=](int64_t row, int64_t start, int64_t end) {
    const Product* product = products + row * 4 * width;
    const float* added = addend + row * addend_stride;
    float* c = cell + row * width;
    Gated* out = gated + row * width;
    float* activation = activations ? activations + row * 4 * width : nullptr;
    float* kept = new_cell + (activations ? row * width : 0);
#pragma omp simd
    for (int64_t j = start; j < end; ++j) {
      float i = read(product + j) + added[j];
      float f = read(product + width + j) + added[width + j];
      float g = read(product + 2 * width + j) + added[2 * width + j];
      float o = read(product + 3 * width + j) + added[3 * width + j];
      float sum = c[j];
      write(out + j, step(i, f, g, o, sum, clip));
      c[j] = sum;
      if (activation) {
        activation[j] = i;
        activation[width + j] = f;
        activation[2 * width + j] = g;
        activation[3 * width + j] = o;
        kept[j] = sum;
      }
    }
  });
}

template <class Product>
void backward(const Product* grad_gated, const float* activations, const float* cell, const float* previous_cell,
              float* grad_cell, Product* grad_gates, float clip, int64_t size, int64_t width, int threads) {
  over_blocks(size, width, threads, [=](int64_t row, int64_t start, int64_t end) {
    const float* activation = activations + row * 4 * width;
    const int64_t first = row * width;
    Product* out = grad_gates + row * 4 * width;
#pragma omp simd
    for (int64_t j = start; j < end; ++j) {
      const float i = activation[j];
      const float f = activation[width + j];
      const float g = activation[2 * width + j];
      const float o = activation[3 * width + j];
      const float gated = read(grad_gated + first + j);
      const float c = cell[first + j];
      const float c_tanh = tangent(c);
      float grad = std::fma(gated * o, 1.0f - c_tanh * c_tanh, grad_cell[first + j]);
      grad = (c >= clip) | (c <= -clip) ? 0.0f : grad;
      grad_cell[first + j] = grad * f;
      write(out + j, grad * g * i * (1.0f - i));
      write(out + width + j, grad * previous_cell[first + j] * f * (1.0f - f));
      write(out + 2 * width + j, grad * i * (1.0f - g * g));
      write(out + 3 * width + j, gated * c_tanh * o * (1.0f - o));
    }
  });
}

}  // namespace

// Names end in the types of products and of what is projected.
#define FORWARD(NAME, PRODUCT, GATED)                                                                                \
  extern "C" void NAME(const PRODUCT* products, const float* addend, float* cell, GATED* gated, float* activations,   \
                       float* new_cell, float clip, int64_t addend_stride, int64_t size, int64_t width, int threads) { \
    forward(products, addend, cell, gated, activations, new_cell, clip, addend_stride, size, width, threads);         \
  }

#define BACKWARD(NAME, PRODUCT)                                                                                    \
  extern "C" void NAME(const PRODUCT* grad_gated, const float* activations, const float* cell,                      \
                       const float* previous_cell, float* grad_cell, PRODUCT* grad_gates, float clip, int64_t size, \
                       int64_t width, int threads) {                                                                \
    backward(grad_gated, activations, cell, previous_cell, grad_cell, grad_gates, clip, size, width, threads);      \
  }

FORWARD(forward_step_float32_float32, float, float)
FORWARD(forward_step_float32_bfloat16, float, BFloat16)
FORWARD(forward_step_bfloat16_float32, BFloat16, float)
FORWARD(forward_step_bfloat16_bfloat16, BFloat16, BFloat16)
BACKWARD(backward_step_float32, float)
BACKWARD(backward_step_bfloat16, BFloat16)
