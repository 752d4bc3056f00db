local options = import '../../elmo_plugin/pretrained/options.json';

(import '../../training_config/table1/semantic_role_labeler_elmo.jsonnet') + (import 'srl_ewt.libsonnet') + {
  model+: {
    text_field_embedder+: { token_embedders+: { tokens:: null, elmo+: { options: options, pretrained_file: 'embedded' } } },
    encoder+: { input_size: 2 * options.lstm.projection_dim + 10 },
  },
}
