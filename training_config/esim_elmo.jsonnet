// SNLI, the row "SNLI", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/esim_elmo.jsonnet -s out --include-package elmo_plugin            sample data, offline
//   allennlp train training_config/released/esim_elmo.jsonnet -s out --include-package elmo_plugin   SNLI, Original
//
// All that ELMo changes in esim.jsonnet is what stands below: ELMo in place of GloVe, the values AllenNLP shipped. The paper
// has GloVe too, ELMo at the input and at the output of the first LSTM, and more: esim_elmo_paper.jsonnet.
//
// To expect on SNLI (test accuracy): 88.7 +/- 0.17 in the paper, 88.5 from AllenNLP's archive (one run).
// Ours: not run (the released weights and the whole of SNLI are needed).
local elmo = import 'elmo.libsonnet';

function(setup='sample')
  (import 'esim.jsonnet')(setup) {
    dataset_reader+: { token_indexers: { elmo: elmo.indexer } },
    model+: {
      text_field_embedder: { token_embedders: { elmo: elmo.token_embedder(setup, dropout=0.0) } },
      encoder+: { input_size: elmo.embedding_dim(setup) },
    },
  }
