// table1/coref_elmo.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/coref_elmo.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/coref_elmo.jsonnet') + (import 'sample/coref.libsonnet') + {
  model+: {
    elmo+: { options: options, pretrained_file: 'embedded', cache: 'memory' },
    context_layer+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
