// Overrides with which table1/coref*.jsonnet runs offline in a minute: the sample data, a smaller model, word vectors of its own.
local span_dim = 2 * 2 * 32 + 8 + 32 + 3 * 8;

{
  dataset_reader+: { token_indexers+: { turian:: null } },
  train_data_path: 'examples/coref/train.gold_conll',
  validation_data_path: 'examples/coref/dev.gold_conll',
  test_data_path: 'examples/coref/test.gold_conll',
  vocabulary:: null,
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        // Vectors without a pretrained file must train.
        glove+: { type: 'embedding', embedding_dim: 32, pretrained_file:: null, trainable: true },
        turian:: null,
        token_characters+: { encoder+: { num_filters: 8 } },
      },
    },
    context_layer+: { input_size: 32 + 3 * 8, hidden_size: 32 },
    mention_feedforward+: { input_dim: span_dim, hidden_dims: 32 },
    antecedent_feedforward+: { input_dim: 3 * span_dim + 3 * 8, hidden_dims: 32 },
    feature_size: 8,
    genres: ['talk', 'story'],
    lexical_dropout: 0.2,
  },
  trainer+: { optimizer+: { lr: 0.002 }, num_epochs: 12 },
}
