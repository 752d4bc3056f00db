// Baseline and ELMo both have the word vectors. AllenNLP's config training_config/table1/semantic_role_labeler_elmo.jsonnet drops them.
local stand_in = import 'data.libsonnet';
local options = import '../../../elmo_plugin/pretrained/options.json';

(import 'semantic_role_labeler.jsonnet') + {
  dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_characters' } } },
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        elmo: stand_in.elmo(options) { type: 'elmo_token_embedder', do_layer_norm: false, dropout: 0.1 },
      },
    },
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
    regularizer: { regexes: [['scalar_parameters', { type: 'l2', alpha: 0.001 }]] },
  },
}
