// table1/esim_elmo.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/esim_elmo.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/esim_elmo.jsonnet') + (import 'sample/esim.libsonnet') + {
  model+: {
    text_field_embedder+: {
      // ELMo stands in place of word vectors.
      token_embedders+: { tokens:: null, elmo+: { options: options, pretrained_file: 'embedded' } },
    },
    encoder+: { input_size: 2 * options.lstm.projection_dim },
  },
}
