// SRL with GloVe and ELMo side by side: the example of AllenNLP 0.9's ELMo how-to.
//   allennlp train training_config/semantic_role_labeler_glove_elmo.jsonnet -s out --include-package elmo_plugin            sample data, offline
//   allennlp train training_config/released/semantic_role_labeler_glove_elmo.jsonnet -s out --include-package elmo_plugin   OntoNotes 5, GloVe, Original
//
// All that ELMo adds to semantic_role_labeler.jsonnet is what stands below; the encoder's input is then 100 (GloVe) + 1024 (ELMo)
// + 100 (predicate) = 1224 wide. No number for it was published. Ours: not run (the data is licensed).
local elmo = import 'elmo.libsonnet';

function(setup='sample')
  (import 'semantic_role_labeler.jsonnet')(setup) {
    dataset_reader+: {
      token_indexers: { tokens: { type: 'single_id' }, elmo: elmo.indexer },
    },
    model+: {
      text_field_embedder+: { token_embedders+: { elmo: elmo.token_embedder(setup, dropout=0.0) } },
      encoder+: { input_size: super.input_size + elmo.embedding_dim(setup) },
    },
  }
