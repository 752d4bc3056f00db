local options = import '../../elmo_plugin/pretrained/options.json';

(import '../../training_config/table1/biattentive_classification_network_elmo.jsonnet') + (import 'sst5.libsonnet') + {
  model+: {
    elmo+: { options: options, pretrained_file: 'embedded' },
    pre_encode_feedforward+: { input_dim+: 2 * options.lstm.projection_dim },
  },
}
