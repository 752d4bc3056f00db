// What the two runs on WikiGold share: the sample setup of training_config/ner*.jsonnet on other files. WIKIGOLD is the folder of
// train.txt and dev.txt.
function(config) config {
  train_data_path: std.extVar('WIKIGOLD') + '/train.txt',
  validation_data_path: std.extVar('WIKIGOLD') + '/dev.txt',
  test_data_path:: null,  // there is none
  data_loader+: { batch_size: 32 },
  trainer+: { num_epochs: 30, patience: 8, checkpointer: { keep_most_recent_by_count: 1 } },
}
