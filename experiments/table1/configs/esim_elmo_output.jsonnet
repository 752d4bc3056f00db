// ELMo at the first LSTM's output instead of at its input (Table 3).
local options = import '../../../elmo_plugin/pretrained/options.json';
local elmo_dim = 2 * options.lstm.projection_dim;

(import 'esim_elmo.jsonnet') + {
  model+: {
    use_input_elmo: false,
    use_output_elmo: true,
    encoder+: { input_size: 100 },
    projection_feedforward+: { input_dim: 4 * (2 * 64 + elmo_dim) },
  },
}
