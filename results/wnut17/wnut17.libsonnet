// What the two runs on WNUT-17 share: the sample setup of training_config/ner*.jsonnet on other files. WNUT17 is the folder of
// train.txt and dev.txt.
function(config) config {
  train_data_path: std.extVar('WNUT17') + '/train.txt',
  validation_data_path: std.extVar('WNUT17') + '/dev.txt',
  test_data_path:: null,  // there is none
  data_loader+: { batch_size: 32 },
  trainer+: { num_epochs: 12, patience: 5, checkpointer: { keep_most_recent_by_count: 1 } },
}
