// table1/biattentive_classification_network_elmo_paper.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/biattentive_classification_network_elmo_paper.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/biattentive_classification_network_elmo_paper.jsonnet')
+ (import 'sample/biattentive_classification_network.libsonnet')
+ {
  model+: {
    elmo+: { options: options, pretrained_file: 'embedded' },
    pre_encode_feedforward+: { input_dim+: 2 * options.lstm.projection_dim },
    output_layer+: {
      input_dim: 4 * (2 * 64 + 2 * options.lstm.projection_dim),
      output_dims:: null,  // of the maxout layers
      hidden_dims: [256, 128, 5],
    },
  },
  // The sample is too small for the paper's rate.
  trainer+: { optimizer+: { lr: 0.001 } },
}
