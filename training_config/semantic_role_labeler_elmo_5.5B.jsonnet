// table1/semantic_role_labeler_elmo_5.5B.jsonnet on the sample data; with the embedded biLM in its place it is the same as
// semantic_role_labeler_elmo.jsonnet.
//   allennlp train training_config/semantic_role_labeler_elmo_5.5B.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/semantic_role_labeler_elmo_5.5B.jsonnet') + (import 'sample/semantic_role_labeler.libsonnet') + {
  model+: {
    text_field_embedder+: {
      // ELMo stands in place of word vectors.
      token_embedders+: { tokens:: null, elmo+: { options: options, pretrained_file: 'embedded' } },
    },
    encoder+: { input_size: 2 * options.lstm.projection_dim + 10 },
  },
}
