local stand_in = import 'data.libsonnet';
local options = import '../../../elmo_plugin/pretrained/options.json';

(import '../../../training_config/table1/biattentive_classification_network_elmo.jsonnet') + (import 'biattentive_classification_network.libsonnet') + {
  model+: {
    elmo+: stand_in.elmo(options),
    pre_encode_feedforward+: { input_dim+: 2 * options.lstm.projection_dim },
  },
}
