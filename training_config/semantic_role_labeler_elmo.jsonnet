// SRL, the row "SRL", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/semantic_role_labeler_elmo.jsonnet -s out --include-package elmo_plugin            sample data, offline
//   allennlp train training_config/released/semantic_role_labeler_elmo.jsonnet -s out --include-package elmo_plugin   OntoNotes 5, Original
//
// All that ELMo changes in semantic_role_labeler.jsonnet is what stands below, the values AllenNLP shipped: ELMo in place of
// GloVe, no bias in the encoder's input projections, a small L2 penalty on the mix, the paper's patience, ten checkpoints. The how-to's own example
// has GloVe beside ELMo: semantic_role_labeler_glove_elmo.jsonnet.
//
// To expect on CoNLL-2012 (test F1): 84.6 in the paper. Ours: not run (the data is licensed).
local elmo = import 'elmo.libsonnet';

function(setup='sample', biLM=setup)
  (import 'semantic_role_labeler.jsonnet')(setup) {
    dataset_reader+: { token_indexers: { elmo: elmo.indexer } },
    model+: {
      text_field_embedder: { token_embedders: { elmo: elmo.token_embedder(biLM, dropout=0.1) } },
      encoder+: {
        input_size: elmo.embedding_dim(biLM) + $.model.binary_feature_dim,
        use_input_projection_bias: false,
      },
      regularizer: { regexes: [['.*scalar_parameters.*', { type: 'l2', alpha: 0.001 }]] },
    },
    trainer+: { patience: 200, checkpointer: { keep_most_recent_by_count: 10 } },
  }
