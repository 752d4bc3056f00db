// What the two runs on SNLI share: the sample setup of training_config/esim*.jsonnet on other files. SNLI is the folder of
// train.jsonl and dev.jsonl.
function(config) config {
  dataset_reader+: { max_instances: 20000 },
  validation_dataset_reader: self.dataset_reader { max_instances: 5000 },
  train_data_path: std.extVar('SNLI') + '/train.jsonl',
  validation_data_path: std.extVar('SNLI') + '/dev.jsonl',
  test_data_path:: null,  // there is none
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 32 } },
  trainer+: {
    optimizer: { type: 'adam', lr: 0.001 },
    num_epochs: 16,
    patience: 3,
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
