// Convolutions and highway layers of the token layer, with their gradients.

#pragma once

#include "linear_training.h"

namespace {

// Convolutions of all widths as one weight of shape `(num_filters, depth)`. An input row holds the embeddings of `widest` characters, then zeros.
struct Convolution {
  const float *filters, *bias, *embedding;
  // Width of each filter, in characters.
  const int64_t* widths;
  int64_t num_filters, depth, char_embedding_dim, widest, padding_id, is_tanh, num_embeddings;
};

// Max pooling of 32 filters over the positions of a token. Windows that reach beyond the last character are left out. `places` holds the first position
// of each maximum, unless it is null.
inline void max_pool(const float* products, int64_t positions, const int64_t* widths, int64_t num_characters, float* largest, int32_t* places) {
  for (int64_t j = 0; places && j < COLUMNS; ++j) places[j] = 0;
  for (int64_t j = 0; j < COLUMNS; ++j) largest[j] = -__builtin_inff();
  for (int64_t position = 0; position < positions; ++position, products += COLUMNS)
    for (int64_t j = 0; j < COLUMNS; ++j) {
      const float value = products[j];
      // NaN counts as the largest.
      const bool takes = (value > largest[j]) | (value != value);
      const bool now = takes & (position + widths[j] <= num_characters);
      largest[j] = now ? value : largest[j];
      if (places) places[j] = now ? static_cast<int32_t>(position) : places[j];
    }
}

// Number of a token's characters, without padding.
inline int64_t token_length(const int64_t* ids, int64_t num_characters, int64_t padding_id) {
  while (num_characters > 0 && ids[num_characters - 1] == padding_id) --num_characters;
  return num_characters;
}

// Computes the filters' activations of tokens, shape `(count, num_filters)`, from character ids, shape `(count, num_characters)`. All windows of
// padding alone give the same values, so only one is computed, at the end of each token. `places`, unless null, gets the positions of the maxima.
template <class Format>
Status convolution(const Convolution& layer, const int64_t* ids, int64_t count, int64_t num_characters, float* outputs, int32_t* places,
                   int64_t threads) {
  const Team team(threads);
  const int64_t max_rows = maximum(BLOCK_ROWS, num_characters + 1);
  const Rows<Format> rows{elmo_scratch(Rows<Format>::size(max_rows, layer.depth) + team.threads * max_rows * COLUMNS), max_rows, layer.depth};
  if (rows.data == nullptr) return NO_MEMORY;
  float* const all_products = rows.data + Rows<Format>::size(max_rows, layer.depth);
  const Weight<Format> filters{layer.filters, layer.num_filters, layer.depth};
  const int64_t dim = layer.char_embedding_dim, width = layer.widest * dim;
  for (int64_t start = 0, end; start < count; start = end) {
    // Index of each token's first row in `rows`.
    int64_t first[BLOCK_ROWS + 1] = {};
    for (end = start; end < count && end - start < BLOCK_ROWS; ++end) {
      first[end - start + 1] = first[end - start] + token_length(ids + end * num_characters, num_characters, layer.padding_id) + 1;
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
    each_column(team, layer.num_filters, COLUMNS, [&](int64_t column, int thread) {
      float* const products = all_products + thread * max_rows * COLUMNS;
      int64_t widest = 1;
      for (int64_t j = 0; j < COLUMNS; ++j) widest = maximum(widest, layer.widths[column + j]);
      // The weights behind the panel's widest filter are zeros. Unlike packed rows, those of float32 may be read in part.
      const Rows<Format> used{rows.data, rows.count, Rows<Format>::PACKED ? rows.dim : round_up(widest * dim, SOME_LANES)};
      filters.template multiply_by<1>(used, first[end - start], column, COLUMNS, products, COLUMNS);
      for (int64_t token = start; token < end; ++token) {
        float* output = outputs + token * layer.num_filters + column;
        const int64_t row = first[token - start];
        max_pool(products + row * COLUMNS, first[token - start + 1] - row, layer.widths + column, num_characters, output,
                 places ? places + token * layer.num_filters + column : nullptr);
        for (int64_t j = 0; j < COLUMNS; ++j) {
          const float sum = output[j] + layer.bias[column + j];
          output[j] = layer.is_tanh ? hyperbolic_tangent(sum) : sum < 0.0f ? 0.0f : sum;
        }
      }
    });
  }
  return DONE;
}

// Highway layer, `gate * x + (1 - gate) * relu(transform)`. The weight, shape `(2 * dim, dim)`, has the rows of the transform, then those of the
// gate. `saved`, shape `(count, 2 * dim)`, gets `relu(transform)` and the gate, unless it is null.
template <class Format>
Status highway(const Affine& layer, const float* inputs, float* outputs, float* saved, int64_t count, int64_t threads) {
  const Team team(threads);
  const auto given = layer.as<Format>();
  constexpr int64_t BOTH = 2 * COLUMNS;
  const int64_t dim = layer.dim, max_rows = minimum(count, BLOCK_ROWS), rows_size = Rows<Format>::size(max_rows, dim);
  float* const memory = elmo_scratch(given.packed_size() + rows_size + team.threads * max_rows * BOTH);
  if (memory == nullptr) return NO_MEMORY;
  float* const packed_rows = memory + given.packed_size();
  const auto weight = given.readable(team, memory);
  over_rows<Format>(team, inputs, count, dim, packed_rows, [&](const Rows<Format>& rows, int64_t size, int64_t start) {
    each_column(team, dim, COLUMNS, [&](int64_t column, int thread) {
      float* const all = packed_rows + rows_size + thread * max_rows * BOTH;
      weight.template multiply_by<2>(rows, size, column, dim, all, BOTH);
      for (int64_t row = 0; row < size; ++row) {
        const int64_t place = (start + row) * dim + column;
        const float* x = inputs + place;
        float *transforms = all + row * BOTH, *gates = transforms + COLUMNS;
#pragma omp simd
        for (int64_t j = 0; j < COLUMNS; ++j) {
          const float sum = transforms[j] + layer.bias[column + j], transform = sum < 0.0f ? 0.0f : sum;
          const float gate = sigmoid(gates[j] + layer.bias[dim + column + j]);
          outputs[place + j] = __builtin_fmaf(gate, x[j] - transform, transform);
          transforms[j] = transform;
          gates[j] = gate;
        }
        for (int64_t half = 0; half < 2 && saved; ++half)
          memcpy(saved + (2 * (start + row) + half) * dim + column, transforms + half * COLUMNS, COLUMNS * sizeof(float));
      }
    });
  });
  return DONE;
}

// --- gradients ---

// Computes the gradients of a highway layer. `saved` holds what its forward pass saved.
template <class Format>
Status highway_backward(const Affine& layer, const float* inputs, const float* saved, const float* grad_outputs, const LinearGradients& grad,
                        int64_t count, int64_t threads) {
  const int64_t dim = layer.dim;
  const auto output = [&](int64_t row, int64_t column, float* values) {
    const bool is_gate = column >= dim;
    const int64_t place = row * dim + column - (is_gate ? dim : 0);
    const float *transform = saved + place + row * dim, *gate = transform + dim, *x = inputs + place, *gradient = grad_outputs + place;
#pragma omp simd
    for (int64_t j = 0; j < COLUMNS; ++j) {
      const float g = gate[j], t = transform[j];
      const float of_transform = t > 0.0f ? gradient[j] * (1.0f - g) : 0.0f, of_gate = gradient[j] * (x[j] - t) * g * (1.0f - g);
      values[j] = is_gate ? of_gate : of_transform;
    }
  };
  const auto finish = [&](int64_t row, int64_t column, float* values) {
    const float *gate = saved + (2 * row + 1) * dim + column, *gradient = grad_outputs + row * dim + column;
    for (int64_t j = 0; j < COLUMNS; ++j) values[j] = __builtin_fmaf(gradient[j], gate[j], values[j]);
  };
  return linear_gradients<Format>(layer, inputs, count, grad, threads, output, finish, 0, no_preparation);
}

// Tokens whose gradients of character embeddings are summed together, so that sums do not depend on the number of threads.
constexpr int64_t TOKENS_AT_ONCE = 64;

// Gradients of convolutions to compute. That of the filters is stored like them, row-major.
struct ConvolutionGradients {
  float *filters, *bias, *embedding;
};

// Computes the gradients of convolutions. Each filter has one of each token's windows as input: that of its maximum, at `places`. The filters of
// `layer` are row-major here. `outputs` are the forward pass's.
inline Status convolution_backward(const Convolution& layer, const int64_t* ids, int64_t count, int64_t num_characters, const float* outputs,
                                   const int32_t* places, const float* grad_outputs, const ConvolutionGradients& grad, int64_t threads) {
  const Team team(threads);
  const int64_t dim = layer.char_embedding_dim, width = num_characters + layer.widest, filters = layer.num_filters;
  const int64_t groups = (count + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE, table = layer.num_embeddings * dim;
  // Gradients of sums, shape `(count, num_filters)`; the tokens' characters, shape `(count, width, dim)`; for each thread the gradients of a token's
  // characters; for each group that of the embedding.
  float* const grad_sums = elmo_scratch(round_up(count * (filters + width * dim) + team.threads * width * dim + groups * table, LINE / 4));
  if (grad_sums == nullptr) return NO_MEMORY;
  float* const characters = grad_sums + count * filters;
  float* const all_grads = characters + count * width * dim;
  float* const tables = all_grads + team.threads * width * dim;
  const auto id = [&](int64_t token, int64_t place) { return place < num_characters ? ids[token * num_characters + place] : layer.padding_id; };
  team.each(count, [&](int64_t token, int) {
    for (int64_t j = token * filters; j < (token + 1) * filters; ++j) {
      const float output = outputs[j];
      grad_sums[j] = layer.is_tanh ? grad_outputs[j] * (1.0f - output * output) : output > 0.0f ? grad_outputs[j] : 0.0f;
    }
    for (int64_t place = 0; place < width; ++place)
      memcpy(characters + (token * width + place) * dim, layer.embedding + id(token, place) * dim, dim * sizeof(float));
  });
  if (grad.filters || grad.bias)
    team.ranges(filters, [&](int64_t begin, int64_t end, int) {
      if (grad.filters) memset(grad.filters + begin * layer.depth, 0, (end - begin) * layer.depth * sizeof(float));
      if (grad.bias) memset(grad.bias + begin, 0, (end - begin) * sizeof(float));
      // A group's characters stay in the cache while all filters read them.
      for (int64_t group = 0; group < groups; ++group)
        for (int64_t filter = begin; filter < end; ++filter) {
          const int64_t first = group * TOKENS_AT_ONCE, last = minimum(first + TOKENS_AT_ONCE, count);
          for (int64_t token = first; token < last && grad.bias; ++token) grad.bias[filter] += grad_sums[token * filters + filter];
          const int64_t size = layer.widths[filter] * dim, whole = round_up(size, LANES) / LANES;
          for (int64_t start = 0, some; start < whole && grad.filters; start += some)
            with_row_count<8>(some = minimum(whole - start, 8), [&](auto number) {
              constexpr int COUNT = decltype(number)::value;
              float* own = grad.filters + filter * layer.depth + start * LANES;
              Vector sums[COUNT];
              for (int k = 0; k < COUNT; ++k) sums[k] = load(own + k * LANES);
              for (int64_t token = first; token < last; ++token) {
                const float gradient = grad_sums[token * filters + filter];
                const float* window = characters + (token * width + places[token * filters + filter]) * dim + start * LANES;
                if (gradient == 0.0f) continue;
                for (int k = 0; k < COUNT; ++k) sums[k] = multiply_add(broadcast(gradient), load(window + k * LANES), sums[k]);
              }
              for (int k = 0; k < COUNT; ++k) store(own + k * LANES, sums[k]);
            });
          // What lies beyond the filter was read for whole vectors alone.
          for (int64_t k = size; k < whole * LANES && grad.filters; ++k) grad.filters[filter * layer.depth + k] = 0.0f;
        }
    });
  if (!grad.embedding) return DONE;
  team.each(groups, [&](int64_t group, int thread) {
    float *own = all_grads + thread * width * dim, *sums = tables + group * table;
    memset(sums, 0, table * sizeof(float));
    for (int64_t token = group * TOKENS_AT_ONCE; token < minimum((group + 1) * TOKENS_AT_ONCE, count); ++token) {
      memset(own, 0, width * dim * sizeof(float));
      for (int64_t filter = 0; filter < filters; ++filter) {
        const float gradient = grad_sums[token * filters + filter];
        if (gradient == 0.0f) continue;
        const float* weight = layer.filters + filter * layer.depth;
        float* window = own + places[token * filters + filter] * dim;
        for (int64_t k = 0; k < layer.widths[filter] * dim; ++k) window[k] = __builtin_fmaf(gradient, weight[k], window[k]);
      }
      for (int64_t place = 0; place < width; ++place)
        for (int64_t k = 0; k < dim; ++k) sums[id(token, place) * dim + k] += own[place * dim + k];
    }
  });
  team.each(table, [&](int64_t k, int) {
    float sum = 0.0f;
    for (int64_t group = 0; group < groups; ++group) sum += tables[group * table + k];
    grad.embedding[k] = sum;
  });
  return DONE;
}

}  // namespace
