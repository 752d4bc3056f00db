// SRL with GloVe and ELMo side by side: the example of AllenNLP 0.9's ELMo how-to.
//   allennlp train training_config/table1/semantic_role_labeler_glove_elmo.jsonnet -s out --include-package elmo_plugin
//
// ELMo adds to semantic_role_labeler.jsonnet only what follows; the encoder's input is then 100 (GloVe) + 1024 (ELMo)
// + 100 (predicate) = 1224 wide. No number for it was published. Ours: not run (the data is licensed).
local options = import 'original_options.json';

(import 'semantic_role_labeler.jsonnet') + {
  dataset_reader+: {
    token_indexers: { tokens: { type: 'single_id' }, elmo: { type: 'elmo_characters' } },
  },
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        elmo: {
          type: 'elmo_token_embedder',
          options: options,
          pretrained_file: 'original',
          do_layer_norm: false,
          dropout: 0.0,
        },
      },
    },
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
