// table1/ner_elmo.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/ner_elmo.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/ner_elmo.jsonnet') + (import 'sample/ner.libsonnet') + {
  model+: {
    text_field_embedder+: { token_embedders+: { elmo+: { options: options, pretrained_file: 'embedded' } } },
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
