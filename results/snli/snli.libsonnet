// What the two runs on SNLI change in training_config/table1/esim*.jsonnet: other files, a smaller model, word vectors of its own.
// SNLI is the folder of train.jsonl and dev.jsonl.
{
  dataset_reader+: { max_instances: 20000 },
  validation_dataset_reader: self.dataset_reader + { max_instances: 5000 },
  train_data_path: std.extVar('SNLI') + '/train.jsonl',
  validation_data_path: std.extVar('SNLI') + '/dev.jsonl',
  test_data_path:: null,  // there is none
  model+: {
    text_field_embedder+: {
      token_embedders+: { tokens+: { embedding_dim: 50, pretrained_file:: null } },
    },
    encoder+: { input_size: 50, hidden_size: 64 },
    projection_feedforward+: { input_dim: 4 * 2 * 64, hidden_dims: 64 },
    inference_encoder+: { input_size: 64, hidden_size: 64 },
    output_feedforward+: { input_dim: 4 * 2 * 64, hidden_dims: 64 },
    output_logit+: { input_dim: 64 },
  },
  trainer+: {
    optimizer: { type: 'adam', lr: 0.001 },
    num_epochs: 16,
    patience: 3,
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
