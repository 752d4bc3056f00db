local options = import '../../elmo_plugin/pretrained/options.json';

(import '../../training_config/table1/squad_elmo.jsonnet') + (import 'squad.libsonnet') + {
  model+: {
    // Five questions share a passage: the biLM reads it once.
    elmo+: { options: options, pretrained_file: 'embedded', state: 'primed', cache: 'memory' },
    phrase_layer+: { input_size: 50 + 100 + 2 * options.lstm.projection_dim },
  },
}
