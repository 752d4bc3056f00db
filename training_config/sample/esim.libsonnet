// Overrides with which table1/esim*.jsonnet runs offline in a few minutes: the sample data, a smaller model, word vectors of its own.
{
  train_data_path: 'examples/snli/train.jsonl',
  validation_data_path: 'examples/snli/dev.jsonl',
  test_data_path: 'examples/snli/test.jsonl',
  model+: {
    text_field_embedder+: {
      // Vectors without a pretrained file must train.
      token_embedders+: { tokens+: { embedding_dim: 50, pretrained_file:: null, trainable: true } },
    },
    encoder+: { input_size: 50, hidden_size: 64 },
    projection_feedforward+: { input_dim: 4 * 2 * 64, hidden_dims: 64 },
    inference_encoder+: { input_size: 64, hidden_size: 64 },
    output_feedforward+: { input_dim: 4 * 2 * 64, hidden_dims: 64 },
    output_logit+: { input_dim: 64 },
  },
  data_loader+: { batch_sampler+: { batch_size: 16 } },
  trainer+: { optimizer+: { lr: 0.002 }, num_epochs: 12 },
}
