// The entry points of a variant: a frozen LSTM layer, the products of the token layer, and the elementwise part of training steps.
//
// The caller pads widths to multiples of 32. Weights are packed into panels, in the number format that the entry point is named for. A float32 weight
// is row-major instead if `row_major` is set.

#include "lstm_training.h"

namespace {

// --- the token layer ---

// Convolutions of all widths as one weight of shape `(num_filters, depth)`. An input row holds the embeddings of `widest` characters, then zeros.
struct Convolution {
  const float *filters, *bias, *embedding;
  // Width of each filter, in characters.
  const int64_t* widths;
  int64_t num_filters, depth, char_embedding_dim, widest, padding_id, is_tanh;
};

// Max pooling of 32 filters over the positions of a token. Windows that reach beyond the last character are left out.
inline void max_pool(const float* products, int64_t positions, const int64_t* widths, int64_t num_characters, float* largest) {
  for (int64_t j = 0; j < COLUMNS; ++j) largest[j] = -__builtin_inff();
  for (int64_t position = 0; position < positions; ++position, products += COLUMNS)
    for (int64_t j = 0; j < COLUMNS; ++j) {
      const float value = products[j];
      // NaN counts as the largest.
      const bool takes = (value > largest[j]) | (value != value);
      largest[j] = takes & (position + widths[j] <= num_characters) ? value : largest[j];
    }
}

// Computes the filters' activations of tokens, shape `(count, num_filters)`, from character ids, shape `(count, num_characters)`. All windows of
// padding alone give the same values, so only one is computed, at the end of each token.
template <class Format>
void run_convolution(const Convolution& layer, const int64_t* ids, int64_t count, int64_t num_characters, float* outputs, int threads) {
  const Team team(threads);
  const int64_t max_rows = maximum(BLOCK_ROWS, num_characters + 1);
  const Rows<Format> rows{elmo_scratch(Rows<Format>::size(max_rows, layer.depth) + team.threads * max_rows * COLUMNS), max_rows, layer.depth};
  float* const all_products = rows.data + Rows<Format>::size(max_rows, layer.depth);
  const Weight<Format> filters{layer.filters, layer.depth, false};
  const int64_t dim = layer.char_embedding_dim, width = layer.widest * dim;
  for (int64_t start = 0, end; start < count; start = end) {
    // Index of each token's first row in `rows`.
    int64_t first[BLOCK_ROWS + 1] = {};
    for (end = start; end < count && end - start < BLOCK_ROWS; ++end) {
      int64_t length = num_characters;
      while (length > 0 && ids[end * num_characters + length - 1] == layer.padding_id) --length;
      first[end - start + 1] = first[end - start] + length + 1;
      if (first[end - start + 1] > max_rows) break;
    }
    team.each(end - start, [&](int64_t token, int) {
      const int64_t* own = ids + (start + token) * num_characters;
      for (int64_t row = first[token]; row < first[token + 1]; ++row) {
        for (int64_t k = 0; k < layer.widest; ++k) {
          const int64_t place = row - first[token] + k;
          const int64_t id = place < num_characters ? own[place] : layer.padding_id;
          rows.write(row, k * dim, layer.embedding + id * dim, dim);
        }
        for (int64_t column = width; column < layer.depth; ++column) *rows.at(row, column) = 0.0f;
        rows.pack(row);
      }
    });
    team.ranges(layer.num_filters / COLUMNS, [&](int64_t begin, int64_t stop, int thread) {
      [[maybe_unused]] const Tiles tiles;
      float* const products = all_products + thread * max_rows * COLUMNS;
      for (int64_t column = begin * COLUMNS; column < stop * COLUMNS; column += COLUMNS) {
        int64_t widest = 1;
        for (int64_t j = 0; j < COLUMNS; ++j) widest = maximum(widest, layer.widths[column + j]);
        // The weights behind the panel's widest filter are zeros. Unlike packed rows, those of float32 may be read in part.
        const Rows<Format> used{rows.data, rows.count, Rows<Format>::PACKED ? rows.dim : round_up(widest * dim, SOME_LANES)};
        multiply<1>(used, first[end - start], filters.panels(column), products, COLUMNS);
        for (int64_t token = start; token < end; ++token) {
          float* output = outputs + token * layer.num_filters + column;
          const int64_t row = first[token - start];
          max_pool(products + row * COLUMNS, first[token - start + 1] - row, layer.widths + column, num_characters, output);
          for (int64_t j = 0; j < COLUMNS; ++j) {
            const float sum = output[j] + layer.bias[column + j];
            output[j] = layer.is_tanh ? hyperbolic_tangent(sum) : sum < 0.0f ? 0.0f : sum;
          }
        }
      }
    });
  }
}

// Packs inputs, shape `(count, dim)`, some rows at a time, and calls `block(rows, size, start, scratch)` after each time. `scratch` has room for
// `more_per_row` floats for each row and thread.
template <class Format, class Block>
void over_rows(const Team& team, const float* inputs, int64_t count, int64_t dim, int64_t more_per_row, const Block& block) {
  const int64_t max_rows = minimum(count, BLOCK_ROWS), size_of_rows = Rows<Format>::size(max_rows, dim);
  const Rows<Format> rows{elmo_scratch(size_of_rows + team.threads * max_rows * more_per_row), max_rows, dim};
  for (int64_t start = 0; start < count; start += max_rows) {
    const int64_t size = minimum(count - start, max_rows);
    load_rows(team, inputs + start * dim, rows, size);
    block(rows, size, start, rows.data + size_of_rows);
  }
}

// Highway layer, `gate * x + (1 - gate) * relu(transform)`. The weight, shape `(2 * dim, dim)`, has the rows of the transform, then those of the
// gate.
template <class Format>
void run_highway(const Weight<Format>& weight, const float* bias, const float* inputs, float* outputs, int64_t count, int threads) {
  const Team team(threads);
  const int64_t dim = weight.dim;
  constexpr int64_t BOTH = 2 * COLUMNS;
  over_rows<Format>(team, inputs, count, dim, BOTH, [&](const Rows<Format>& rows, int64_t size, int64_t start, float* all_products) {
    team.ranges(dim / COLUMNS, [&](int64_t begin, int64_t end, int thread) {
      [[maybe_unused]] const Tiles tiles;
      float* const products = all_products + thread * rows.count * BOTH;
      for (int64_t column = begin * COLUMNS; column < end * COLUMNS; column += COLUMNS) {
        if (weight.row_major) {
          weight.multiply_by(rows, size, column, products, BOTH);
          weight.multiply_by(rows, size, dim + column, products + COLUMNS, BOTH);
        } else {
          multiply<2>(rows, size, weight.panels(column, dim), products, BOTH);
        }
        for (int64_t row = 0; row < size; ++row) {
          const float* x = inputs + (start + row) * dim + column;
          float* output = outputs + (start + row) * dim + column;
#pragma omp simd
          for (int64_t j = 0; j < COLUMNS; ++j) {
            const float sum = products[row * BOTH + j] + bias[column + j];
            const float transform = sum < 0.0f ? 0.0f : sum;
            const float gate = sigmoid(products[row * BOTH + COLUMNS + j] + bias[dim + column + j]);
            output[j] = __builtin_fmaf(gate, x[j] - transform, transform);
          }
        }
      }
    });
  });
}

// Computes `inputs W^T + bias`, shape `(count, output_dim)`.
template <class Format>
void run_linear(const Weight<Format>& weight, const float* bias, const float* inputs, float* outputs, int64_t count, int64_t output_dim,
                int threads) {
  const Team team(threads);
  over_rows<Format>(team, inputs, count, weight.dim, 0, [&](const Rows<Format>& rows, int64_t size, int64_t start, float*) {
    team.ranges(output_dim / COLUMNS, [&](int64_t begin, int64_t end, int) {
      [[maybe_unused]] const Tiles tiles;
      for (int64_t column = begin * COLUMNS; column < end * COLUMNS; column += COLUMNS) {
        float* output = outputs + start * output_dim + column;
        weight.multiply_by(rows, size, column, output, output_dim);
        for (int64_t row = 0; row < size; ++row)
          for (int64_t j = 0; j < COLUMNS; ++j) output[row * output_dim + j] += bias ? bias[column + j] : 0.0f;
      }
    });
  });
}

// --- the elementwise part of a training step and of its gradient; `triton_kernels.py` has the same for a GPU ---
//
// Matrices have `width` columns; those of the gates `i, f, g, o` have `4 * width`. Arithmetic is in float32, also for matrices stored in bfloat16.

struct StoredBFloat16 {
  uint16_t bits;
};

inline float read(const float* place) { return *place; }

inline float read(const StoredBFloat16* place) { return with_bits(static_cast<int32_t>(uint32_t{place->bits} << 16)); }

inline void write(float* place, float value) { *place = value; }

inline void write(StoredBFloat16* place, float value) { place->bits = bfloat16_bits(value); }

// BLOCK_COLUMNS: columns in an item of work. With fewer than MIN_SHARED_BLOCKS items one thread runs: waking others would take longer than they save.
constexpr int64_t BLOCK_COLUMNS = 512, MIN_SHARED_BLOCKS = 16;

template <class Body>
void over_blocks(int64_t size, int64_t width, int threads, const Body& body) {
  const int64_t blocks = (width + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS, items = size * blocks;
  const Team team(items < MIN_SHARED_BLOCKS ? 1 : threads);
  team.each(items, [&](int64_t item, int) {
    const int64_t start = item % blocks * BLOCK_COLUMNS;
    body(item / blocks, start, minimum(start + BLOCK_COLUMNS, width));
  });
}

template <class Product, class Gated>
void forward_step(const Product* products, const float* addend, float* cell, Gated* gated, float* activations, float* new_cell, float clip,
                  int64_t addend_stride, int64_t size, int64_t width, int threads) {
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
      write(out + j, lstm_gates(i, f, g, o, sum, clip));
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
void backward_step(const Product* grad_gated, const float* activations, const float* cell, const float* previous_cell, float* grad_cell,
                   Product* grad_gates, float clip, int64_t size, int64_t width, int threads) {
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
      const float c_tanh = hyperbolic_tangent(c);
      float grad = __builtin_fmaf(gated * o, 1.0f - c_tanh * c_tanh, grad_cell[first + j]);
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

#define JOINED(NAME, VARIANT) NAME##_##VARIANT
#define NAMED(NAME, VARIANT) JOINED(NAME, VARIANT)
#define ENTRY(NAME) extern "C" void NAMED(NAME, VARIANT)

// Packs a matrix of four-byte lanes, shape `(output_dim, lanes)`, into panels. Scales, if given, are stored behind each panel.
ENTRY(pack)(const float* matrix, const float* scales, float* panels, int64_t output_dim, int64_t lanes, int threads) {
  const Team team(threads);
  const int64_t size = lanes * COLUMNS + (scales ? COLUMNS : 0);
  team.each(output_dim / COLUMNS, [&](int64_t panel, int) {
    pack_panel(matrix + panel * COLUMNS * lanes, lanes, lanes, panels + panel * size);
    if (scales) memcpy(panels + panel * size + lanes * COLUMNS, scales + panel * COLUMNS, COLUMNS * sizeof(float));
  });
}

#define FROZEN(FORMAT, TYPE)                                                                                                              \
  ENTRY(lstm_layer_##FORMAT)(const Layer* layer, const float* inputs, float* hidden, float* cell, float* outputs, const int64_t* sizes,   \
                             int64_t steps, int64_t elements, int threads) {                                                              \
    run_layer<TYPE>(*layer, inputs, hidden, cell, outputs, sizes, steps, elements, threads);                                              \
  }                                                                                                                                       \
  ENTRY(convolution_##FORMAT)(const Convolution* layer, const int64_t* ids, int64_t count, int64_t num_characters, float* outputs,        \
                              int threads) {                                                                                              \
    run_convolution<TYPE>(*layer, ids, count, num_characters, outputs, threads);                                                          \
  }                                                                                                                                       \
  ENTRY(highway_##FORMAT)(const float* weight, int64_t dim, int row_major, const float* bias, const float* inputs, float* outputs,        \
                          int64_t count, int threads) {                                                                                   \
    run_highway(Weight<TYPE>{weight, dim, row_major != 0}, bias, inputs, outputs, count, threads);                                        \
  }                                                                                                                                       \
  ENTRY(linear_##FORMAT)(const float* weight, int64_t dim, int row_major, const float* bias, const float* inputs, float* outputs,         \
                         int64_t count, int64_t output_dim, int threads) {                                                                \
    run_linear(Weight<TYPE>{weight, dim, row_major != 0}, bias, inputs, outputs, count, output_dim, threads);                             \
  }

FROZEN(float32, Float32)
FROZEN(int16, Int16)
FROZEN(int8, Int8)
#if defined(__AMX_BF16__)
FROZEN(bfloat16, BFloat16)
#endif

#define TRAINED(FORMAT, TYPE)                                                                                                             \
  ENTRY(train_forward_##FORMAT)(const Layer* layer, const float* inputs, float* hidden, float* cell, float* outputs, float* activations,  \
                                float* cells, const int64_t* sizes, int64_t steps, int threads) {                                         \
    train_forward<TYPE>(*layer, inputs, hidden, cell, outputs, activations, cells, sizes, steps, threads);                                \
  }                                                                                                                                       \
  ENTRY(train_backward_##FORMAT)(const Layer* layer, const Saved* saved, const Gradients* grad, const int64_t* sizes, int64_t steps,      \
                                 int threads) {                                                                                           \
    train_backward<TYPE>(*layer, *saved, *grad, sizes, steps, threads);                                                                   \
  }

TRAINED(float32, Float32)

#define FORWARD_STEP(NAME, PRODUCT, GATED)                                                                                             \
  ENTRY(NAME)(const PRODUCT* products, const float* addend, float* cell, GATED* gated, float* activations, float* new_cell, float clip, \
              int64_t addend_stride, int64_t size, int64_t width, int threads) {                                                       \
    forward_step(products, addend, cell, gated, activations, new_cell, clip, addend_stride, size, width, threads);                     \
  }

#define BACKWARD_STEP(NAME, PRODUCT)                                                                                              \
  ENTRY(NAME)(const PRODUCT* grad_gated, const float* activations, const float* cell, const float* previous_cell, float* grad_cell, \
              PRODUCT* grad_gates, float clip, int64_t size, int64_t width, int threads) {                                        \
    backward_step(grad_gated, activations, cell, previous_cell, grad_cell, grad_gates, clip, size, width, threads);               \
  }

FORWARD_STEP(forward_step_float32_float32, float, float)
FORWARD_STEP(forward_step_float32_bfloat16, float, StoredBFloat16)
FORWARD_STEP(forward_step_bfloat16_float32, StoredBFloat16, float)
FORWARD_STEP(forward_step_bfloat16_bfloat16, StoredBFloat16, StoredBFloat16)
BACKWARD_STEP(backward_step_float32, float)
BACKWARD_STEP(backward_step_bfloat16, StoredBFloat16)
