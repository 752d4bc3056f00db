// The smallest biLM, to see pretraining run: 2 x 128/32, full softmax. Paths as in bilm.jsonnet, with no vocabulary file: words
// that occur 5 times. training_config/bilm_tiny.jsonnet takes a minute on the sample text.
//   allennlp train training_config/table1/bilm_tiny.jsonnet -s out --include-package elmo_plugin
{
  dataset_reader: { type: 'bilm_text' },
  vocabulary: { type: 'bilm_words', min_count: 5 },
  datasets_for_vocab_creation: ['train'],
  train_data_path: std.extVar('BIDIRECTIONAL_LM_TRAIN_PATH'),
  validation_data_path: std.extVar('BIDIRECTIONAL_LM_HELDOUT_PATH'),
  model: {
    type: 'bilm_language_model',
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
  data_loader: { type: 'token_streams', batch_size: 16, num_steps: 20, shuffle: true },
  validation_data_loader: { type: 'token_streams', batch_size: 4, num_steps: 20, shuffle: false },
  trainer: {
    type: 'bilm_pretraining',
    num_epochs: 10,
    validation_metric: '-perplexity',
    grad_norm: 1.0,
    optimizer: { type: 'adamw', lr: 5e-3, weight_decay: 0.01 },
    callbacks: ['export_bilm'],
  },
}
