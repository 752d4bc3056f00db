// What the two runs on WNUT-17 change in training_config/table1/ner*.jsonnet: other files, a smaller model, word vectors of its
// own. WNUT17 is the folder of train.txt and dev.txt.
{
  train_data_path: std.extVar('WNUT17') + '/train.txt',
  validation_data_path: std.extVar('WNUT17') + '/dev.txt',
  test_data_path:: null,  // there is none
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        tokens+: { pretrained_file:: null },
        token_characters+: { encoder+: { num_filters: 32 } },
      },
    },
    encoder+: { input_size: 50 + 32, hidden_size: 64 },
  },
  data_loader+: { batch_size: 32 },
  trainer+: {
    optimizer+: { lr: 0.003 },
    num_epochs: 12,
    patience: 5,
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
