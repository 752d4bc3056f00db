// ELMo at the first LSTM's input and output (Table 3).
local options = import '../../../elmo_plugin/pretrained/options.json';
local elmo_dim = 2 * options.lstm.projection_dim;

(import 'esim_elmo.jsonnet') + {
  model+: {
    elmo+: { num_output_representations: 2 },
    use_output_elmo: true,
    projection_feedforward+: { input_dim: 4 * (2 * 64 + elmo_dim) },
  },
}
