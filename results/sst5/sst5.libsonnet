// What the two runs on SST-5 change in training_config/table1/biattentive_classification_network*.jsonnet: whole sentences only, a
// smaller model, word vectors of its own. SST is the folder of train.txt and dev.txt.
{
  dataset_reader+: { use_subtrees: false },
  train_data_path: std.extVar('SST') + '/train.txt',
  validation_data_path: std.extVar('SST') + '/dev.txt',
  test_data_path:: null,  // there is none
  model+: {
    text_field_embedder+: {
      token_embedders+: { tokens+: { embedding_dim: 50, pretrained_file:: null, trainable: true } },
    },
    pre_encode_feedforward+: { input_dim: 50, hidden_dims: 64 },
    encoder+: { input_size: 64, hidden_size: 64 },
    integrator+: { input_size: 3 * 2 * 64, hidden_size: 64 },
    output_layer+: { input_dim: 4 * 2 * 64, output_dims: [256, 128, 5] },
  },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 32 } },
  trainer+: { num_epochs: 4, checkpointer: { keep_most_recent_by_count: 1 } },
}
