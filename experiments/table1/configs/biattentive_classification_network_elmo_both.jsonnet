// ELMo at the input and at the integrator's output (Table 3).
local options = import '../../../elmo_plugin/pretrained/options.json';
local elmo_dim = 2 * options.lstm.projection_dim;

(import 'biattentive_classification_network_elmo.jsonnet') + {
  model+: {
    elmo+: { num_output_representations: 2 },
    use_integrator_output_elmo: true,
    output_layer+: { input_dim: 4 * (2 * 64 + elmo_dim) },
  },
}
