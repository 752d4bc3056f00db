// Runs every entry point of a variant of the library on the same random numbers, and prints a checksum of each result. Its argument is the number of
// threads. Processors whose output is the same compute the same bits. For bfloat16, which has other bits on other processors, it also prints the
// relative error against float32. With the name of a variant as argument, the exit status says whether this processor can run it.

#include "kernels.cpp"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

extern "C" int elmo_supports(const char* variant);

namespace {

typedef std::vector<float> Floats;
typedef std::vector<int64_t> Sizes;

int threads;
uint64_t state;
// Results of each call since it was last cleared, and what they are compared with unless it is empty.
std::vector<Floats> found, expected;

// Uniform in [-1, 1), by integers alone.
float uniform() {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<float>(static_cast<int64_t>(state >> 40)) / (1 << 23) - 1.0f;
}

Floats random_floats(int64_t count, float scale = 1.0f) {
  Floats numbers(count);
  for (float& number : numbers) number = uniform() * scale;
  return numbers;
}

// Norm of the difference over the norm of what is expected.
double relative_error(const Floats& numbers, const Floats& exact) {
  double difference = 0.0, norm = 0.0;
  for (size_t k = 0; k < exact.size(); ++k) {
    difference += (numbers[k] - exact[k]) * (numbers[k] - exact[k]);
    norm += exact[k] * exact[k];
  }
  return sqrt(difference / norm);
}

// Prints the FNV-1a hash of the results, how many there are, how many are ordinary numbers, and their error.
void print(const char* entry, const char* format, std::initializer_list<Floats> results) {
  uint64_t hash = 14695981039346656037u;
  int64_t count = 0, ordinary = 0;
  double error = 0.0;
  for (const Floats& numbers : results) {
    count += numbers.size();
    if (!expected.empty() && strcmp(entry, "pack")) error = fmax(error, relative_error(numbers, expected.at(found.size())));
    if (strcmp(entry, "pack")) found.push_back(numbers);
    for (const float number : numbers) {
      hash = (hash ^ static_cast<uint32_t>(bits_of(number))) * 1099511628211u;
      ordinary += isnormal(number);
    }
  }
  printf("%s %s %016llx %lld %lld %.2e\n", entry, format, static_cast<unsigned long long>(hash), static_cast<long long>(ordinary),
         static_cast<long long>(count), error);
}

template <class Format>
constexpr const char* NAME = "bfloat16";
template <>
constexpr const char* NAME<Float32> = "float32";
template <>
constexpr const char* NAME<Int16> = "int16";
template <>
constexpr const char* NAME<Int8> = "int8";

// Returns a packed weight. Its columns from `used` on, if given, are zeros.
template <class Format>
Floats packed(int64_t rows, int64_t dim, const int64_t* used = nullptr) {
  constexpr int PER_LANE = Format::PER_LANE;
  constexpr bool IS_BFLOAT16 = PER_LANE == 2 && Format::SCALES == 0;
  const int64_t lanes = dim / PER_LANE;
  Floats matrix(rows * lanes), scales(rows), exact(IS_BFLOAT16 ? rows * dim : 0);
  for (int64_t row = 0; row < rows; ++row) {
    scales[row] = (uniform() + 2.0f) * (PER_LANE == 2 ? 1e-9f : 1e-6f);
    for (int64_t k = 0; k < dim; ++k) {
      const float number = used == nullptr || k < used[row] ? uniform() : 0.0f;
      const int64_t place = row * dim + k;
      if (PER_LANE == 1) matrix[place] = number * 0.1f;
      if (IS_BFLOAT16) exact[place] = number * 0.1f;
      // The norm of 128 numbers is below the limit.
      if (PER_LANE == 2 && !IS_BFLOAT16) reinterpret_cast<int16_t*>(matrix.data())[place] = static_cast<int16_t>(number * 5000.0f);
      if (PER_LANE == 4) reinterpret_cast<uint8_t*>(matrix.data())[place] = static_cast<uint8_t>(128 + static_cast<int>(number * 127.0f));
    }
  }
  if constexpr (IS_BFLOAT16) Format::pack(exact.data(), rows * dim, matrix.data(), nullptr);
  Floats panels(rows * lanes + (Format::SCALES ? rows : 0));
  pack(matrix.data(), Format::SCALES ? scales.data() : nullptr, panels.data(), rows, lanes, threads);
  print("pack", NAME<Format>, {panels});
  return panels;
}

struct LstmShape {
  int64_t width, dim, input_dim;
  Sizes sizes;
};
const LstmShape LSTMS[] = {{288, 160, 96, {14, 7, 3, 1}}, {96, 64, 352, {71, 35, 35}}, {32, 32, 32, {1, 1, 1}}};

struct LinearShape {
  int64_t dim, output_dim, count;
};
const LinearShape LINEARS[] = {{352, 96, 71}, {64, 32, 517}, {32, 64, 1}};

template <class Format>
void run_lstm(const LstmShape& shape, bool row_major) {
  const int64_t width = shape.width, dim = shape.dim, count = count_rows(shape.sizes.data(), shape.sizes.size()), most = shape.sizes[0];
  const Floats input = row_major ? random_floats(4 * width * shape.input_dim, 0.1f) : packed<Format>(4 * width, shape.input_dim);
  const Floats state_weight = packed<Format>(4 * width, dim), projection = packed<Format>(dim, width);
  const Floats bias = random_floats(4 * width);
  Floats inputs = random_floats(count * shape.input_dim, 3.0f);
  Floats hidden = random_floats(most * dim), cell = random_floats(most * width), outputs(count * dim);
  const Layer layer{input.data(), bias.data(), state_weight.data(), projection.data(), width, dim, shape.input_dim, row_major, 0.8f, 0.2f};
  const Tensors tensors{inputs.data(), hidden.data(), cell.data(), outputs.data(), nullptr, nullptr};
  run_layer<Format, false>(layer, tensors, shape.sizes.data(), shape.sizes.size(), threads);
  print("lstm_layer", NAME<Format>, {outputs, hidden, cell});
}

template <class Format>
void train_lstm(const LstmShape& shape) {
  const int64_t width = shape.width, dim = shape.dim, count = count_rows(shape.sizes.data(), shape.sizes.size()), most = shape.sizes[0];
  const Floats input = random_floats(4 * width * shape.input_dim, 0.1f), state_weight = random_floats(4 * width * dim, 0.1f);
  const Floats projection = random_floats(dim * width, 0.1f), bias = random_floats(4 * width);
  Floats inputs = random_floats(count * shape.input_dim), hidden = random_floats(most * dim), cell = random_floats(most * width);
  const Floats grad_outputs = random_floats(count * dim);
  Floats last_hidden = hidden, last_cell = cell, outputs(count * dim), activations(count * 4 * width), cells(count * width);
  const Layer layer{input.data(), bias.data(), state_weight.data(), projection.data(), width, dim, shape.input_dim, 1, 0.8f, 0.3f};
  Tensors tensors{inputs.data(), last_hidden.data(), last_cell.data(), outputs.data(), activations.data(), cells.data()};
  run_layer<Format, true>(layer, tensors, shape.sizes.data(), shape.sizes.size(), threads);
  print("lstm_forward", NAME<Format>, {outputs, last_hidden, last_cell, cells});
  tensors.hidden = hidden.data();
  tensors.cell = cell.data();
  Floats to_inputs(inputs.size()), to_input(input.size()), to_state(state_weight.size()), to_bias(bias.size()), to_projection(projection.size());
  Floats memory((count + 31) / 32 * 32 * (5 * width + 2 * dim));
  const Gradients grad{memory.data(),   grad_outputs.data(), to_inputs.data(),    to_input.data(),
                       to_state.data(), to_bias.data(),      to_projection.data()};
  lstm_backward<Format>(layer, tensors, grad, shape.sizes.data(), shape.sizes.size(), threads);
  print("lstm_backward", NAME<Format>, {to_inputs, to_input, to_state, to_bias, to_projection});
}

template <class Format>
void run_linear_layers(const LinearShape& shape, bool row_major) {
  const int64_t dim = shape.dim, output_dim = shape.output_dim, count = shape.count;
  const auto weight = [&](int64_t rows) { return row_major ? random_floats(rows * dim, 0.1f) : packed<Format>(rows, dim); };
  const Floats weights = weight(output_dim), both = weight(2 * dim), bias = random_floats(output_dim);
  const Floats highway_bias = random_floats(2 * dim), inputs = random_floats(count * dim);
  Floats outputs(count * output_dim), carried(inputs.size());
  linear<Format>({weights.data(), bias.data(), output_dim, dim, row_major}, inputs.data(), outputs.data(), nullptr, count, threads);
  print("linear", NAME<Format>, {outputs});
  highway<Format>({both.data(), highway_bias.data(), 2 * dim, dim, row_major}, inputs.data(), carried.data(), nullptr, count, threads);
  print("highway", NAME<Format>, {carried});
}

template <class Format>
void train_linear_layers(const LinearShape& shape) {
  const int64_t dim = shape.dim, output_dim = shape.output_dim, count = shape.count;
  const Floats weight = random_floats(output_dim * dim, 0.1f), both = random_floats(2 * dim * dim, 0.1f), bias = random_floats(output_dim);
  const Floats highway_bias = random_floats(2 * dim), inputs = random_floats(count * dim), grad_outputs = random_floats(count * output_dim);
  const Floats grad_carried = random_floats(count * dim);
  Floats outputs(count * output_dim), carried(inputs.size()), saved(2 * inputs.size()), to_inputs(inputs.size());
  Floats to_linear(weight.size()), to_bias(bias.size()), to_highway(both.size()), to_highway_bias(highway_bias.size());
  const Affine layer{weight.data(), bias.data(), output_dim, dim, true}, carries{both.data(), highway_bias.data(), 2 * dim, dim, true};
  linear<Format>(layer, inputs.data(), outputs.data(), nullptr, count, threads);
  print("linear", NAME<Format>, {outputs});
  const LinearGradients of_linear{to_inputs.data(), to_linear.data(), to_bias.data()};
  linear_backward<Format>(layer, inputs.data(), nullptr, grad_outputs.data(), of_linear, count, threads);
  print("linear_backward", NAME<Format>, {to_inputs, to_linear, to_bias});
  std::vector<int32_t> ids(output_dim), targets(count);
  for (int64_t column = 0; column < output_dim; ++column) ids[column] = column % 7 - 1;
  for (int64_t row = 0; row < count; ++row) targets[row] = row % 9;
  const Logits logits{layer, inputs.data(), ids.data(), targets.data(), count};
  Floats largest(count), sums(count);
  log_sum_exp<Format>(logits, largest.data(), sums.data(), threads);
  print("log_sum_exp", NAME<Format>, {largest, sums});
  log_sum_exp_backward<Format>(logits, largest.data(), sums.data(), of_linear, threads);
  print("log_sum_exp_backward", NAME<Format>, {to_inputs, to_linear, to_bias});
  highway<Format>(carries, inputs.data(), carried.data(), saved.data(), count, threads);
  print("highway", NAME<Format>, {carried, saved});
  const LinearGradients of_highway{to_inputs.data(), to_highway.data(), to_highway_bias.data()};
  highway_backward<Format>(carries, inputs.data(), saved.data(), grad_carried.data(), of_highway, count, threads);
  print("highway_backward", NAME<Format>, {to_inputs, to_highway, to_highway_bias});
}

// Convolutions of 1 to 5 characters, and if `trained` their gradients, whose filters are row-major.
template <class Format>
void run_convolutions(int64_t count, bool trained) {
  constexpr int64_t FILTERS = 96, DIM = 7, WIDEST = 5, CHARACTERS = 11, EMBEDDINGS = 29, PADDING = 3, DEPTH = 64;
  Sizes widths(FILTERS), used(FILTERS), ids(count * CHARACTERS);
  for (int64_t filter = 0; filter < FILTERS; ++filter) {
    widths[filter] = 1 + filter * WIDEST / FILTERS;
    used[filter] = widths[filter] * DIM;
  }
  for (int64_t token = 0; token < count; ++token)
    for (int64_t place = 0; place < CHARACTERS; ++place)
      ids[token * CHARACTERS + place] = place > token % CHARACTERS ? PADDING : static_cast<int64_t>((uniform() + 1.0f) * EMBEDDINGS / 2.0f);
  const Floats embedding = random_floats(EMBEDDINGS * DIM), bias = random_floats(FILTERS, 0.1f);
  Floats filters = trained ? random_floats(FILTERS * DEPTH) : packed<Format>(FILTERS, DEPTH, used.data()), outputs(count * FILTERS);
  const Floats row_major = filters;
  if (trained) {
    for (int64_t place = 0; place < FILTERS * DEPTH; ++place)
      if (place % DEPTH >= used[place / DEPTH]) filters[place] = 0.0f;
    const Floats matrix = filters;
    pack(matrix.data(), nullptr, filters.data(), FILTERS, DEPTH, threads);
  }
  std::vector<int32_t> places(outputs.size());
  const int64_t is_tanh = count != 37;
  Convolution layer{filters.data(), bias.data(), embedding.data(), widths.data(), FILTERS, DEPTH, DIM, WIDEST, PADDING, is_tanh, EMBEDDINGS};
  convolution<Format>(layer, ids.data(), count, CHARACTERS, outputs.data(), places.data(), threads);
  print("convolution", NAME<Format>, {outputs, Floats(places.begin(), places.end())});
  if (!trained) return;
  layer.filters = row_major.data();
  const Floats grad_outputs = random_floats(outputs.size());
  Floats to_filters(FILTERS * DEPTH), to_bias(FILTERS), to_embedding(embedding.size());
  const ConvolutionGradients grad{to_filters.data(), to_bias.data(), to_embedding.data()};
  convolution_backward(layer, ids.data(), count, CHARACTERS, outputs.data(), places.data(), grad_outputs.data(), grad, threads);
  print("convolution_backward", "float32", {to_filters, to_bias, to_embedding});
}

// Runs frozen and trained layers, from the same random numbers each time.
template <class Format, bool TRAINS>
void run_all() {
  state = 0;
  found.clear();
  for (const LstmShape& shape : LSTMS) {
    run_lstm<Format>(shape, false);
    if constexpr (TRAINS) train_lstm<Format>(shape);
  }
  for (const LinearShape& shape : LINEARS) {
    run_linear_layers<Format>(shape, false);
    if constexpr (TRAINS) train_linear_layers<Format>(shape);
  }
  for (const int64_t count : {1, 37, 301}) run_convolutions<Format>(count, false);
}

}  // namespace

int main(int, char** arguments) {
  threads = atoi(arguments[1]);
  if (threads == 0) return !elmo_supports(arguments[1]);
  run_all<Int16, false>();
  run_all<Int8, false>();
  for (const LstmShape& shape : LSTMS) run_lstm<Float32>(shape, true);
  for (const LinearShape& shape : LINEARS) run_linear_layers<Float32>(shape, true);
  for (const int64_t count : {1, 37, 301}) run_convolutions<Float32>(count, true);
  run_all<Float32, true>();
#if defined(HAS_BFLOAT16)
  expected = found;
  run_all<BFloat16, true>();
  expected.clear();
#endif
}
