// table1/biattentive_classification_network_elmo.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/biattentive_classification_network_elmo.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/biattentive_classification_network_elmo.jsonnet')
+ (import 'sample/biattentive_classification_network.libsonnet')
+ {
  model+: {
    elmo+: { options: options, pretrained_file: 'embedded' },
    pre_encode_feedforward+: { input_dim+: 2 * options.lstm.projection_dim },
  },
}
