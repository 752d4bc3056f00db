// NER, the row "NER", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/ner_elmo.jsonnet -s out --include-package elmo_plugin            sample data, offline
//   allennlp train training_config/released/ner_elmo.jsonnet -s out --include-package elmo_plugin   CoNLL-2003, GloVe, Original
//
// All that ELMo adds to ner.jsonnet is what stands below: the values AllenNLP shipped, but for its paths. That one chose the
// model on the file in NER_TEST_DATA_PATH; here, as in ner.jsonnet, it is chosen on testa, and testb's words get GloVe rows.
//
// To expect on CoNLL-2003 (test F1): 92.22 +/- 0.10 in the paper (five seeds), 92.51 from AllenNLP's archive (one run).
// Ours: not run (the data is licensed).
local elmo = import 'elmo.libsonnet';

function(setup='sample')
  (import 'ner.jsonnet')(setup) {
    dataset_reader+: { token_indexers+: { elmo: elmo.indexer } },
    model+: {
      text_field_embedder+: { token_embedders+: { elmo: elmo.token_embedder(setup, dropout=0.0) } },
      encoder+: { input_size: super.input_size + elmo.embedding_dim(setup) },
      regularizer: { regexes: [['scalar_parameters', { type: 'l2', alpha: 0.1 }]] },
    },
  }
