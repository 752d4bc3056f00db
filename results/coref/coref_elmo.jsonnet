local options = import '../../elmo_plugin/pretrained/options.json';

(import '../../training_config/table1/coref_elmo.jsonnet') + (import 'coref.libsonnet') + {
  model+: {
    elmo+: { options: options, pretrained_file: 'embedded', cache: 'memory' },
    context_layer+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
