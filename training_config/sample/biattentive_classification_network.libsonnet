// Overrides with which table1/biattentive_classification_network*.jsonnet runs offline in a few minutes: the sample data, a smaller model, word
// vectors of its own.
{
  train_data_path: 'examples/sst/train.txt',
  validation_data_path: 'examples/sst/dev.txt',
  test_data_path: 'examples/sst/test.txt',
  model+: {
    text_field_embedder+: {
      token_embedders+: { tokens+: { embedding_dim: 50, pretrained_file:: null, trainable: true } },
    },
    pre_encode_feedforward+: { input_dim: 50, hidden_dims: 64 },
    encoder+: { input_size: 64, hidden_size: 64 },
    integrator+: { input_size: 3 * 2 * 64, hidden_size: 64 },
    output_layer+: { input_dim: 4 * 2 * 64, output_dims: [256, 128, 5] },
  },
  trainer+: { num_epochs: 5 },
}
