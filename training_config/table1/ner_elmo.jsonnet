// NER, the row "NER", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/ner_elmo.jsonnet -s out --include-package elmo_plugin
//
// ELMo adds to ner.jsonnet only what follows: the values AllenNLP shipped, but for its paths. That one chose the
// model on the file in NER_TEST_DATA_PATH; here, as in ner.jsonnet, it is chosen on testa, and testb's words get GloVe rows.
//
// Expected on CoNLL-2003 (test F1): 92.22 +/- 0.10 in the paper (five seeds), 92.51 from AllenNLP's archive (one run).
// Ours: not run (the data is licensed).
local options = import 'original_options.json';

(import 'ner.jsonnet') + {
  dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_characters' } } },
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
    regularizer: { regexes: [['scalar_parameters', { type: 'l2', alpha: 0.1 }]] },
  },
}
