// The entry points of a variant of the library.
//
// The caller pads widths to multiples of 32. Weights are packed into panels, in the number format that the entry point is named for, or row-major: those
// with `row_major`, and all of a layer that trains, whose forward pass saves something for its backward pass.

#include "lstm_training.h"
#include "token_layer.h"

#define JOINED(NAME, VARIANT) NAME##_##VARIANT
#define NAMED(NAME, VARIANT) JOINED(NAME, VARIANT)
#define ENTRY(NAME) extern "C" int NAMED(NAME, VARIANT)

// Packs a matrix of four-byte lanes, shape `(output_dim, lanes)`, into panels. Scales, if given, are stored behind each panel.
ENTRY(pack)(const float* matrix, const float* scales, float* panels, int64_t output_dim, int64_t lanes, int threads) {
  const Team team(threads);
  const int64_t size = lanes * COLUMNS + (scales ? COLUMNS : 0);
  team.each(output_dim / COLUMNS, [&](int64_t panel, int) {
    pack_panel(matrix + panel * COLUMNS * lanes, lanes, lanes, panels + panel * size);
    if (scales) memcpy(panels + panel * size + lanes * COLUMNS, scales + panel * COLUMNS, COLUMNS * sizeof(float));
  });
  return DONE;
}

#define FORWARD(FORMAT, TYPE)                                                                                                             \
  ENTRY(convolution_##FORMAT)(const Convolution* layer, const int64_t* ids, int64_t count, int64_t num_characters, float* outputs,        \
                              int32_t* places, int threads) {                                                                             \
    return run_convolution<TYPE>(*layer, ids, count, num_characters, outputs, places, threads);                                           \
  }                                                                                                                                       \
  ENTRY(highway_##FORMAT)(const float* weight, int64_t dim, int row_major, const float* bias, const float* inputs, float* outputs,        \
                          float* saved, int64_t count, int threads) {                                                                     \
    return run_highway(Weight<TYPE>{weight, dim, row_major != 0}, bias, inputs, outputs, saved, count, threads);                          \
  }                                                                                                                                       \
  ENTRY(linear_##FORMAT)(const float* weight, int64_t dim, int row_major, const float* bias, const float* inputs, float* outputs,         \
                         int64_t count, int64_t output_dim, int threads) {                                                                \
    return run_linear(Weight<TYPE>{weight, dim, row_major != 0}, bias, inputs, outputs, count, output_dim, threads);                      \
  }                                                                                                                                       \
  ENTRY(lstm_layer_##FORMAT)(const Layer* layer, const float* inputs, float* hidden, float* cell, float* outputs, float* activations,     \
                             float* cells, const int64_t* sizes, int64_t steps, int threads)

#define FROZEN(FORMAT, TYPE)                                                                                                              \
  FORWARD(FORMAT, TYPE) { return run_layer<TYPE, false>(*layer, inputs, hidden, cell, outputs, activations, cells, sizes, steps, threads); }

#define TRAINED(FORMAT, TYPE)                                                                                                             \
  FORWARD(FORMAT, TYPE) {                                                                                                                 \
    const auto run = activations ? run_layer<TYPE, true> : run_layer<TYPE, false>;                                                        \
    return run(*layer, inputs, hidden, cell, outputs, activations, cells, sizes, steps, threads);                                         \
  }                                                                                                                                       \
  ENTRY(lstm_backward_##FORMAT)(const Layer* layer, const Saved* saved, const Gradients* grad, const int64_t* sizes, int64_t steps,       \
                                int threads) {                                                                                            \
    return lstm_backward<TYPE>(*layer, *saved, *grad, sizes, steps, threads);                                                             \
  }                                                                                                                                       \
  ENTRY(linear_backward_##FORMAT)(const float* weight, int64_t dim, const float* inputs, const float* grad_outputs,                       \
                                  const LinearGradients* grad, int64_t count, int64_t output_dim, int threads) {                          \
    return linear_backward<TYPE>(weight, dim, inputs, grad_outputs, *grad, count, output_dim, threads);                                   \
  }                                                                                                                                       \
  ENTRY(log_sum_exp_##FORMAT)(const Logits* logits, float* largest, float* sums, int threads) {                                           \
    return log_sum_exp<TYPE>(*logits, largest, sums, threads);                                                                            \
  }                                                                                                                                       \
  ENTRY(log_sum_exp_backward_##FORMAT)(const Logits* logits, const float* results, const float* grad_results,                             \
                                       const LinearGradients* grad, int threads) {                                                        \
    return log_sum_exp_backward<TYPE>(*logits, results, grad_results, *grad, threads);                                                    \
  }                                                                                                                                       \
  ENTRY(highway_backward_##FORMAT)(const float* weight, int64_t dim, const float* inputs, const float* saved, const float* grad_outputs,  \
                                   const LinearGradients* grad, int64_t count, int threads) {                                             \
    return highway_backward<TYPE>(weight, dim, inputs, saved, grad_outputs, *grad, count, threads);                                       \
  }

TRAINED(float32, Float32)
FROZEN(int16, Int16)
FROZEN(int8, Int8)
#if defined(HAS_BFLOAT16)
TRAINED(bfloat16, BFloat16)
#endif

ENTRY(convolution_backward)(const Convolution* layer, const int64_t* ids, int64_t count, int64_t num_characters, int64_t num_embeddings,
                            const float* outputs, const int32_t* places, const float* grad_outputs, const ConvolutionGradients* grad, int threads) {
  return convolution_backward(*layer, ids, count, num_characters, num_embeddings, outputs, places, grad_outputs, *grad, threads);
}
