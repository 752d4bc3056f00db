// Overrides with which table1/squad*.jsonnet runs offline on the sample data: small sizes, word vectors of their own, offline.
{
  train_data_path: 'examples/squad/train.json',
  validation_data_path: 'examples/squad/dev.json',
  test_data_path: 'examples/squad/test.json',
  vocabulary: { min_count: { token_characters: 1 } },
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        token_characters+: { encoder+: { encoder+: { num_filters: 20 } } },
        tokens: { type: 'embedding', embedding_dim: 30 },
      },
    },
    phrase_layer+: { input_size: 20 + 30, hidden_size: 30 },
    residual_encoder+: { input_size: 2 * 30, hidden_size: 30 },
    span_start_encoder+: { input_size: 2 * 30, hidden_size: 30 },
    span_end_encoder+: { input_size: 4 * 30, hidden_size: 30 },
  },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 15, sorting_keys: ['passage'] } },
  trainer+: {
    // Adadelta's first steps are tiny, and an average over a thousand steps is of no use in 130.
    optimizer: { type: 'adam', lr: 0.003 },
    moving_average: { type: 'exponential', decay: 0.9 },
    num_epochs: 8,
  },
}
