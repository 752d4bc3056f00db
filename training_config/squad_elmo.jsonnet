// table1/squad_elmo.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/squad_elmo.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/squad_elmo.jsonnet') + (import 'sample/squad.libsonnet') + {
  model+: {
    // Primed, a passage has the same vectors whatever was read before it.
    elmo+: { options: options, pretrained_file: 'embedded', state: 'primed' },
    phrase_layer+: { input_size: 20 + 30 + 2 * options.lstm.projection_dim },
  },
  trainer+: { num_epochs: 3 },
}
