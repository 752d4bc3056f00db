// SRL, the row "SRL", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/semantic_role_labeler_elmo.jsonnet -s out --include-package elmo_plugin
//
// ELMo changes in semantic_role_labeler.jsonnet only what follows, the values AllenNLP shipped: ELMo in place of
// GloVe, no bias in the encoder's input projections, a small L2 penalty on the mix, the paper's patience, ten checkpoints. The
// how-to's own example has GloVe beside ELMo: semantic_role_labeler_glove_elmo.jsonnet.
//
// Expected on CoNLL-2012 (test F1): 84.6 in the paper. Ours: not run (the data is licensed).
local options = import 'original_options.json';

(import 'semantic_role_labeler.jsonnet') + {
  dataset_reader+: { token_indexers: { elmo: { type: 'elmo_characters' } } },
  model+: {
    text_field_embedder: {
      token_embedders: {
        elmo: {
          type: 'elmo_token_embedder',
          options: options,
          pretrained_file: 'original',
          do_layer_norm: false,
          dropout: 0.1,
        },
      },
    },
    encoder+: {
      input_size: 2 * options.lstm.projection_dim + 100,
      use_input_projection_bias: false,
    },
    regularizer: { regexes: [['.*scalar_parameters.*', { type: 'l2', alpha: 0.001 }]] },
  },
  trainer+: { patience: 200, checkpointer: { keep_most_recent_by_count: 10 } },
}
