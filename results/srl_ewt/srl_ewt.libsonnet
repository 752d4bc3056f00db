// What the two runs on English EWT change in training_config/table1/semantic_role_labeler*.jsonnet: other files, a smaller model,
// word vectors of its own, Adam. SRL is the folder of the directories train and dev.
{
  dataset_reader+: { max_instances: 10000 },
  validation_dataset_reader: self.dataset_reader + { max_instances: 2000 },
  train_data_path: std.extVar('SRL') + '/train',
  validation_data_path: std.extVar('SRL') + '/dev',
  model+: {
    text_field_embedder+: {
      token_embedders+: { tokens+: { embedding_dim: 30, pretrained_file:: null } },
    },
    binary_feature_dim: 10,
    encoder+: { input_size: 30 + 10, hidden_size: 100, num_layers: 4 },
  },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 40 } },
  trainer+: {
    optimizer: { type: 'adam', lr: 0.002 },
    num_epochs: 6,
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
