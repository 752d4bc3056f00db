// What the two runs on SST-5 share: the sample setup of training_config/biattentive_classification_network*.jsonnet on other
// files, whole sentences only. SST is the folder of train.txt and dev.txt.
function(config) config {
  dataset_reader+: { use_subtrees: false },
  train_data_path: std.extVar('SST') + '/train.txt',
  validation_data_path: std.extVar('SST') + '/dev.txt',
  test_data_path:: null,  // there is none
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 32 } },
  trainer+: { num_epochs: 4, checkpointer: { keep_most_recent_by_count: 1 } },
}
