// The entry points of a variant of the library.
//
// The caller pads widths to multiples of 32. Weights are packed into panels, in the number format that the entry point is named for, or row-major: those
// with `row_major`, and all of a layer that trains, whose forward pass saves something for its backward pass.

#include "lstm_training.h"
#include "token_layer.h"

namespace {

// Packs a matrix of four-byte lanes, shape `(output_dim, lanes)`, into panels. Scales, if given, are stored behind each panel.
Status pack(const float* matrix, const float* scales, float* panels, int64_t output_dim, int64_t lanes, int64_t threads) {
  const Team team(threads);
  const int64_t size = lanes * COLUMNS + (scales ? COLUMNS : 0);
  team.each(output_dim / COLUMNS, [&](int64_t panel, int) {
    pack_panel(matrix + panel * COLUMNS * lanes, lanes, lanes, panels + panel * size);
    if (scales) memcpy(panels + panel * size + lanes * COLUMNS, scales + panel * COLUMNS, COLUMNS * sizeof(float));
  });
  return DONE;
}

struct Entry {
  const char* name;
  void* function;
};

}  // namespace

#define JOINED(NAME, VARIANT) NAME##_##VARIANT
#define NAMED(NAME, VARIANT) JOINED(NAME, VARIANT)
#define ENTRY(NAME, FUNCTION) {NAME, reinterpret_cast<void*>(FUNCTION)},
#define FROZEN(FORMAT, TYPE)                                 \
  ENTRY("convolution_" FORMAT, convolution<TYPE>)            \
  ENTRY("highway_" FORMAT, highway<TYPE>)                    \
  ENTRY("linear_" FORMAT, linear<TYPE>)                      \
  ENTRY("lstm_layer_" FORMAT, (run_layer<TYPE, false>))
#define TRAINED(FORMAT, TYPE)                                \
  FROZEN(FORMAT, TYPE)                                       \
  ENTRY("highway_backward_" FORMAT, highway_backward<TYPE>)  \
  ENTRY("linear_backward_" FORMAT, linear_backward<TYPE>)    \
  ENTRY("log_sum_exp_" FORMAT, log_sum_exp<TYPE>)            \
  ENTRY("log_sum_exp_backward_" FORMAT, log_sum_exp_backward<TYPE>) \
  ENTRY("lstm_forward_" FORMAT, (run_layer<TYPE, true>))     \
  ENTRY("lstm_backward_" FORMAT, lstm_backward<TYPE>)

// Returns the address of an entry point, whose arguments are pointers and int64_t; null if the variant has none of that name.
extern "C" void* NAMED(elmo_entry, VARIANT)(const char* name) {
  const Entry entries[] = {
    ENTRY("pack", pack)
    ENTRY("convolution_backward", convolution_backward)
    TRAINED("float32", Float32)
    FROZEN("int16", Int16)
    FROZEN("int8", Int8)
#if defined(HAS_BFLOAT16)
    TRAINED("bfloat16", BFloat16)
#endif
  };
  for (const Entry& one : entries)
    if (!strcmp(one.name, name)) return one.function;
  return nullptr;
}
