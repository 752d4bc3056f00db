// Overrides with which table1/semantic_role_labeler*.jsonnet runs offline in a few minutes: the sample data, a smaller model, word vectors of its
// own.
{
  train_data_path: 'examples/srl/train',
  validation_data_path: 'examples/srl/dev',
  model+: {
    text_field_embedder+: {
      token_embedders+: { tokens+: { embedding_dim: 30, pretrained_file:: null } },
    },
    binary_feature_dim: 10,
    encoder+: { input_size: 30 + 10, hidden_size: 40, num_layers: 4 },
  },
  data_loader+: { batch_sampler+: { batch_size: 10 } },
  trainer+: { num_epochs: 12 },
}
