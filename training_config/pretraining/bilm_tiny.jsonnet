// The smallest biLM, to try pretraining: 2 x 128/32, full softmax. Paths as in bilm.jsonnet, except the vocabulary: words that occur
// 5 times. training_config/bilm_tiny.jsonnet takes a minute on the sample text.
//   elmo-plugin pretrain training_config/pretraining/bilm_tiny.jsonnet -s out
{
  type: 'bilm_pretraining',
  vocabulary: { min_count: 5 },
  train_data_path: std.extVar('BIDIRECTIONAL_LM_TRAIN_PATH'),
  validation_data_path: std.extVar('BIDIRECTIONAL_LM_HELDOUT_PATH'),
  model: {
    options: {
      lstm: { dim: 128, projection_dim: 32, n_layers: 2, cell_clip: 3, proj_clip: 3, use_skip_connections: true },
      char_cnn: {
        activation: 'relu',
        embedding: { dim: 16 },
        filters: [[1, 16], [2, 16], [3, 32], [4, 32]],
        n_highway: 1,
        n_characters: 262,
        max_characters_per_token: 50,
      },
    },
    dropout: 0.1,
  },
  data_loader: { batch_size: 16, num_steps: 20, shuffle: true },
  validation_data_loader: { batch_size: 4, num_steps: 20, shuffle: false },
  trainer: {
    num_epochs: 10,
    validation_metric: '-perplexity',
    grad_norm: 1.0,
    optimizer: { type: 'adamw', lr: 5e-3, weight_decay: 0.01 },
  },
}
