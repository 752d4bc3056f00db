// Runs one LSTM layer of the portable variant: reads arrays, each behind its length, from standard input, and writes the results to standard output.

#include "kernels.cpp"

#include <stdio.h>

#include <vector>

template <class Number>
std::vector<Number> read_array() {
  int64_t count = 0;
  fread(&count, sizeof count, 1, stdin);
  std::vector<Number> numbers(count);
  fread(numbers.data(), sizeof(Number), count, stdin);
  return numbers;
}

int main(int, char** arguments) {
  const auto input = read_array<float>(), bias = read_array<float>(), state = read_array<float>(), projection = read_array<float>();
  const auto sizes = read_array<int64_t>(), widths = read_array<int64_t>();
  const auto clips = read_array<float>(), inputs = read_array<float>();
  auto hidden = read_array<float>(), cell = read_array<float>();
  const Layer layer{input.data(), bias.data(), state.data(), projection.data(), widths[0], widths[1], widths[2], widths[3], clips[0], clips[1]};
  std::vector<float> outputs(inputs.size() / layer.input_dim * layer.dim);
  const auto run = !strcmp(arguments[1], "float32") ? lstm_layer_float32_portable
                   : !strcmp(arguments[1], "int16") ? lstm_layer_int16_portable
                                                    : lstm_layer_int8_portable;
  run(&layer, inputs.data(), hidden.data(), cell.data(), outputs.data(), sizes.data(), sizes.size(), widths[4], 1);
  for (const auto& numbers : {outputs, hidden, cell}) fwrite(numbers.data(), sizeof(float), numbers.size(), stdout);
}
