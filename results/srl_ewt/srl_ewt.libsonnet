// What the two runs on English EWT share: the sample setup of training_config/semantic_role_labeler*.jsonnet, wider, on other
// files. SRL is the folder of the directories train and dev.
function(config) config {
  dataset_reader+: { max_instances: 10000 },
  validation_dataset_reader: self.dataset_reader { max_instances: 2000 },
  train_data_path: std.extVar('SRL') + '/train',
  validation_data_path: std.extVar('SRL') + '/dev',
  model+: { encoder+: { hidden_size: 100 } },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 40 } },
  trainer+: {
    optimizer: { type: 'adam', lr: 0.002 },
    num_epochs: 6,
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
