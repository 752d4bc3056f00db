// Runs every entry point of a variant of the library on the same random numbers, and prints a checksum of each result. Its argument is the number of
// threads. Processors whose output is the same compute the same bits. For bfloat16, which has other bits on other processors, it also prints the
// relative error against float32. With the name of a variant as argument, the exit status says whether this processor can run it.

#include "kernels.cpp"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

extern "C" int elmo_supports(const char* variant);
extern "C" void elmo_block_hashes(const uint8_t* data, int64_t size, int64_t block, uint64_t* hashes, int threads);

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

struct Entries {
  const char* format;
  int per_lane;
  decltype(&lstm_layer_float32_portable) lstm_layer;
  decltype(&convolution_float32_portable) convolution;
  decltype(&highway_float32_portable) highway;
  decltype(&linear_float32_portable) linear;

  // Returns a packed weight. Its columns from `used` on, if given, are zeros.
  Floats weight(int64_t rows, int64_t dim, const int64_t* used = nullptr) const {
    const int64_t lanes = dim / per_lane;
    const bool is_bfloat16 = !strcmp(format, "bfloat16");
    Floats matrix(rows * lanes), scales(rows), exact(is_bfloat16 ? rows * dim : 0);
    for (int64_t row = 0; row < rows; ++row) {
      scales[row] = (uniform() + 2.0f) * (per_lane == 2 ? 1e-9f : 1e-6f);
      for (int64_t k = 0; k < dim; ++k) {
        const float number = used == nullptr || k < used[row] ? uniform() : 0.0f;
        const int64_t place = row * dim + k;
        if (per_lane == 1) matrix[place] = number * 0.1f;
        if (is_bfloat16) exact[place] = number * 0.1f;
        // The norm of 128 numbers is below the limit.
        if (per_lane == 2 && !is_bfloat16) reinterpret_cast<int16_t*>(matrix.data())[place] = static_cast<int16_t>(number * 5000.0f);
        if (per_lane == 4) reinterpret_cast<uint8_t*>(matrix.data())[place] = static_cast<uint8_t>(128 + static_cast<int>(number * 127.0f));
      }
    }
#if defined(HAS_BFLOAT16)
    if (is_bfloat16) BFloat16::pack(exact.data(), rows * dim, matrix.data(), nullptr);
#endif
    const bool scaled = per_lane > 1 && !is_bfloat16;
    Floats panels(rows * lanes + (scaled ? rows : 0));
    pack_portable(matrix.data(), scaled ? scales.data() : nullptr, panels.data(), rows, lanes, threads);
    print("pack", format, {panels});
    return panels;
  }
};

// The entry points that train.
struct Trained {
  const char* format;
  decltype(&lstm_layer_float32_portable) forward;
  decltype(&lstm_backward_float32_portable) backward;
  decltype(&linear_float32_portable) linear;
  decltype(&linear_backward_float32_portable) linear_backward;
  decltype(&highway_float32_portable) highway;
  decltype(&highway_backward_float32_portable) highway_backward;
  decltype(&log_sum_exp_float32_portable) log_sum_exp;
  decltype(&log_sum_exp_backward_float32_portable) log_sum_exp_backward;
};

#define ENTRIES(FORMAT, PER_LANE) \
  { #FORMAT, PER_LANE, lstm_layer_##FORMAT##_portable, convolution_##FORMAT##_portable, highway_##FORMAT##_portable, linear_##FORMAT##_portable }
#define TRAINS(FORMAT)                                                                                                                    \
  {                                                                                                                                       \
    #FORMAT, lstm_layer_##FORMAT##_portable, lstm_backward_##FORMAT##_portable, linear_##FORMAT##_portable,                     \
        linear_backward_##FORMAT##_portable, highway_##FORMAT##_portable, highway_backward_##FORMAT##_portable,                     \
        log_sum_exp_##FORMAT##_portable, log_sum_exp_backward_##FORMAT##_portable                                                   \
  }
const Entries FLOAT32 = ENTRIES(float32, 1), INT16 = ENTRIES(int16, 2), INT8 = ENTRIES(int8, 4);
const Trained TRAINED_FLOAT32 = TRAINS(float32);

struct LstmShape {
  int64_t width, dim, input_dim;
  Sizes sizes;
};
const LstmShape LSTMS[] = {{288, 160, 96, {14, 7, 3, 1}}, {96, 64, 352, {71, 35, 35}}, {32, 32, 32, {1, 1, 1}}};

struct LinearShape {
  int64_t dim, output_dim, count;
};
const LinearShape LINEARS[] = {{352, 96, 71}, {64, 32, 517}, {32, 64, 1}};

void run_lstm(const Entries& one, const LstmShape& shape, bool row_major) {
  const int64_t width = shape.width, dim = shape.dim, count = count_rows(shape.sizes.data(), shape.sizes.size()), most = shape.sizes[0];
  const auto weight = [&](int64_t rows, int64_t columns) { return row_major ? random_floats(rows * columns, 0.1f) : one.weight(rows, columns); };
  const Floats input = weight(4 * width, shape.input_dim), state_weight = one.weight(4 * width, dim), projection = one.weight(dim, width);
  const Floats bias = random_floats(4 * width), inputs = random_floats(count * shape.input_dim, 3.0f);
  Floats hidden = random_floats(most * dim), cell = random_floats(most * width), outputs(count * dim);
  const Layer layer{input.data(), bias.data(), state_weight.data(), projection.data(), width, dim, shape.input_dim, row_major, 0.8f, 0.2f};
  one.lstm_layer(&layer, inputs.data(), hidden.data(), cell.data(), outputs.data(), nullptr, nullptr, shape.sizes.data(), shape.sizes.size(), threads);
  print("lstm_layer", one.format, {outputs, hidden, cell});
}

void train_lstm(const Trained& one, const LstmShape& shape) {
  const int64_t width = shape.width, dim = shape.dim, count = count_rows(shape.sizes.data(), shape.sizes.size()), most = shape.sizes[0];
  const Floats input = random_floats(4 * width * shape.input_dim, 0.1f), state_weight = random_floats(4 * width * dim, 0.1f);
  const Floats projection = random_floats(dim * width, 0.1f), bias = random_floats(4 * width);
  Floats inputs = random_floats(count * shape.input_dim), hidden = random_floats(most * dim), cell = random_floats(most * width);
  const Floats grad_outputs = random_floats(count * dim);
  Floats last_hidden = hidden, last_cell = cell, outputs(count * dim), activations(count * 4 * width), cells(count * width);
  const Layer layer{input.data(), bias.data(), state_weight.data(), projection.data(), width, dim, shape.input_dim, 1, 0.8f, 0.3f};
  one.forward(&layer, inputs.data(), last_hidden.data(), last_cell.data(), outputs.data(), activations.data(), cells.data(), shape.sizes.data(),
              shape.sizes.size(), threads);
  print("lstm_layer", one.format, {outputs, last_hidden, last_cell, cells});
  const Saved saved{inputs.data(), hidden.data(), cell.data(), outputs.data(), activations.data(), cells.data()};
  Floats to_inputs(inputs.size()), to_input(input.size()), to_state(state_weight.size()), to_bias(bias.size()), to_projection(projection.size());
  Floats memory((count + 31) / 32 * 32 * (5 * width + 2 * dim));
  const Gradients grad{memory.data(),   grad_outputs.data(), to_inputs.data(),    to_input.data(),
                       to_state.data(), to_bias.data(),      to_projection.data()};
  one.backward(&layer, &saved, &grad, shape.sizes.data(), shape.sizes.size(), threads);
  print("lstm_backward", one.format, {to_inputs, to_input, to_state, to_bias, to_projection});
}

void run_linear_layers(const Entries& one, const LinearShape& shape, bool row_major) {
  const auto weight = [&](int64_t rows) { return row_major ? random_floats(rows * shape.dim, 0.1f) : one.weight(rows, shape.dim); };
  const Floats linear = weight(shape.output_dim), highway = weight(2 * shape.dim), bias = random_floats(shape.output_dim);
  const Floats highway_bias = random_floats(2 * shape.dim), inputs = random_floats(shape.count * shape.dim);
  Floats outputs(shape.count * shape.output_dim), carried(inputs.size());
  one.linear(linear.data(), shape.dim, row_major, bias.data(), inputs.data(), outputs.data(), shape.count, shape.output_dim, threads);
  print("linear", one.format, {outputs});
  one.highway(highway.data(), shape.dim, row_major, highway_bias.data(), inputs.data(), carried.data(), nullptr, shape.count, threads);
  print("highway", one.format, {carried});
}

void train_linear_layers(const Trained& one, const LinearShape& shape) {
  const int64_t dim = shape.dim, output_dim = shape.output_dim, count = shape.count;
  const Floats linear = random_floats(output_dim * dim, 0.1f), highway = random_floats(2 * dim * dim, 0.1f), bias = random_floats(output_dim);
  const Floats highway_bias = random_floats(2 * dim), inputs = random_floats(count * dim), grad_outputs = random_floats(count * output_dim);
  const Floats grad_carried = random_floats(count * dim);
  Floats outputs(count * output_dim), carried(inputs.size()), saved(2 * inputs.size()), to_inputs(inputs.size());
  Floats to_linear(linear.size()), to_bias(bias.size()), to_highway(highway.size()), to_highway_bias(highway_bias.size());
  one.linear(linear.data(), dim, true, bias.data(), inputs.data(), outputs.data(), count, output_dim, threads);
  print("linear", one.format, {outputs});
  const LinearGradients of_linear{to_inputs.data(), to_linear.data(), to_bias.data()};
  one.linear_backward(linear.data(), dim, inputs.data(), grad_outputs.data(), &of_linear, count, output_dim, threads);
  print("linear_backward", one.format, {to_inputs, to_linear, to_bias});
  std::vector<int32_t> ids(output_dim), targets(count);
  for (int64_t column = 0; column < output_dim; ++column) ids[column] = column % 7 - 1;
  for (int64_t row = 0; row < count; ++row) targets[row] = row % 9;
  const Logits logits{linear.data(), bias.data(), inputs.data(), ids.data(), targets.data(), dim, output_dim, count};
  Floats largest(count), sums(count);
  one.log_sum_exp(&logits, largest.data(), sums.data(), threads);
  print("log_sum_exp", one.format, {largest, sums});
  one.log_sum_exp_backward(&logits, largest.data(), sums.data(), &of_linear, threads);
  print("log_sum_exp_backward", one.format, {to_inputs, to_linear, to_bias});
  one.highway(highway.data(), dim, true, highway_bias.data(), inputs.data(), carried.data(), saved.data(), count, threads);
  print("highway", one.format, {carried, saved});
  const LinearGradients of_highway{to_inputs.data(), to_highway.data(), to_highway_bias.data()};
  one.highway_backward(highway.data(), dim, inputs.data(), saved.data(), grad_carried.data(), &of_highway, count, threads);
  print("highway_backward", one.format, {to_inputs, to_highway, to_highway_bias});
}

// Convolutions of 1 to 5 characters, and if `trained` their gradients, whose filters are row-major.
void run_convolutions(const Entries& one, int64_t count, bool is_tanh, bool trained) {
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
  Floats filters = trained ? random_floats(FILTERS * DEPTH) : one.weight(FILTERS, DEPTH, used.data()), outputs(count * FILTERS);
  const Floats row_major = filters;
  if (trained) {
    for (int64_t place = 0; place < FILTERS * DEPTH; ++place)
      if (place % DEPTH >= used[place / DEPTH]) filters[place] = 0.0f;
    const Floats matrix = filters;
    pack_portable(matrix.data(), nullptr, filters.data(), FILTERS, DEPTH, threads);
  }
  std::vector<int32_t> places(outputs.size());
  Convolution layer{filters.data(), bias.data(), embedding.data(), widths.data(), FILTERS, DEPTH, DIM, WIDEST, PADDING, is_tanh};
  one.convolution(&layer, ids.data(), count, CHARACTERS, outputs.data(), places.data(), threads);
  print("convolution", one.format, {outputs, Floats(places.begin(), places.end())});
  if (!trained) return;
  layer.filters = row_major.data();
  const Floats grad_outputs = random_floats(outputs.size());
  Floats to_filters(FILTERS * DEPTH), to_bias(FILTERS), to_embedding(embedding.size());
  const ConvolutionGradients grad{to_filters.data(), to_bias.data(), to_embedding.data()};
  convolution_backward_portable(&layer, ids.data(), count, CHARACTERS, EMBEDDINGS, outputs.data(), places.data(), grad_outputs.data(), &grad,
                                threads);
  print("convolution_backward", "float32", {to_filters, to_bias, to_embedding});
}

// Runs frozen and trained layers, from the same random numbers each time.
void run_all(const Entries& one, const Trained* trained) {
  state = 0;
  found.clear();
  for (const LstmShape& shape : LSTMS) {
    run_lstm(one, shape, false);
    if (trained) train_lstm(*trained, shape);
  }
  for (const LinearShape& shape : LINEARS) {
    run_linear_layers(one, shape, false);
    if (trained) train_linear_layers(*trained, shape);
  }
  for (const int64_t count : {1, 37, 301}) run_convolutions(one, count, count != 37, false);
}

}  // namespace

int main(int, char** arguments) {
  threads = atoi(arguments[1]);
  if (threads == 0) return !elmo_supports(arguments[1]);
  for (const Entries& one : {INT16, INT8}) run_all(one, nullptr);
  for (const LstmShape& shape : LSTMS) run_lstm(FLOAT32, shape, true);
  for (const LinearShape& shape : LINEARS) run_linear_layers(FLOAT32, shape, true);
  for (const int64_t count : {1, 37, 301}) run_convolutions(FLOAT32, count, count != 37, true);
  run_all(FLOAT32, &TRAINED_FLOAT32);
#if defined(HAS_BFLOAT16)
  const Trained trained = TRAINS(bfloat16);
  expected = found;
  run_all(ENTRIES(bfloat16, 2), &trained);
  expected.clear();
#endif
  const Floats data = random_floats(12345);
  uint64_t hashes[4];
  elmo_block_hashes(reinterpret_cast<const uint8_t*>(data.data()), 4 * data.size() - 3, 16384, hashes, threads);
  for (const uint64_t hash : hashes) printf("block_hashes uint64 %016llx 1 1 0\n", static_cast<unsigned long long>(hash));
}
