// SNLI, the row "SNLI", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/esim_elmo.jsonnet -s out --include-package elmo_plugin
//
// ELMo changes in esim.jsonnet only what follows: ELMo in place of GloVe, the values AllenNLP shipped. The paper
// has GloVe too, ELMo at the input and at the output of the first LSTM, and more: esim_elmo_paper.jsonnet.
//
// Expected on SNLI (test accuracy): 88.7 +/- 0.17 in the paper, 88.5 from AllenNLP's archive (one run).
// Ours: not run (the released weights and the whole of SNLI are needed).
local options = import 'original_options.json';

(import 'esim.jsonnet') + {
  dataset_reader+: { token_indexers: { elmo: { type: 'elmo_characters' } } },
  model+: {
    text_field_embedder: {
      token_embedders: {
        elmo: {
          type: 'elmo_token_embedder',
          options: options,
          pretrained_file: 'original',
          do_layer_norm: false,
          dropout: 0.0,
        },
      },
    },
    encoder+: { input_size: 2 * options.lstm.projection_dim },
  },
}
