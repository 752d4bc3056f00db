// ELMo at the integrator's output instead of at the input (Table 3).
local options = import '../../../elmo_plugin/pretrained/options.json';
local elmo_dim = 2 * options.lstm.projection_dim;

(import 'biattentive_classification_network_elmo.jsonnet') + {
  model+: {
    use_input_elmo: false,
    use_integrator_output_elmo: true,
    pre_encode_feedforward+: { input_dim: 100 },
    output_layer+: { input_dim: 4 * (2 * 64 + elmo_dim) },
  },
}
