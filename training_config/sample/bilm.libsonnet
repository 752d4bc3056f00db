// Makes pretraining/bilm*.jsonnet run offline in a few minutes: sample text, the words in it, small sizes.
{
  vocabulary: {},
  train_data_path: 'examples/text/train.txt',
  validation_data_path: 'examples/text/heldout.txt',
  model+: {
    options+: {
      lstm+: { dim: 64, projection_dim: 32 },
      char_cnn+: { filters: [[1, 8], [2, 8], [3, 16]] },
    },
    softmax+: { num_samples: 64 },
  },
  data_loader+: { batch_size: 16, num_workers: 0 },
  validation_data_loader+: { batch_size: 4 },
  trainer+: { num_epochs: 5, checkpointer: { save_every_num_batches: 50 } },
}
