// The biLM of Peters et al. 2018, section 3.4 ("Original"): bilm-tf's bin/train_elmo.py at 7cffee2, value for value.
//   elmo-plugin pretrain training_config/pretraining/bilm.jsonnet -s out
// Paths come from BIDIRECTIONAL_LM_TRAIN_PATH (a glob: 1 Billion Word's shards, tokenized sentences, one a line),
// BIDIRECTIONAL_LM_HELDOUT_PATH and BIDIRECTIONAL_LM_VOCAB_PATH (`elmo-plugin vocabulary`, or bilm-tf's file).
//
// bilm-tf trains on 3 GPUs with 128 streams each: torchrun --nproc-per-node 3 -m elmo_plugin pretrain
// training_config/pretraining/bilm.jsonnet -s out. batch_size is the number of streams of one process.
//
// Expected: held-out perplexity (average of both directions) 39.7 in the paper, after two weeks on 3 GTX 1080. Not run here.
{
  type: 'bilm_pretraining',
  vocabulary: { vocabulary_file: std.extVar('BIDIRECTIONAL_LM_VOCAB_PATH') },
  train_data_path: std.extVar('BIDIRECTIONAL_LM_TRAIN_PATH'),
  validation_data_path: std.extVar('BIDIRECTIONAL_LM_HELDOUT_PATH'),
  model: {
    options: {
      lstm: {
        use_skip_connections: true,
        projection_dim: 512,
        dim: 4096,
        cell_clip: 3,
        proj_clip: 3,
        n_layers: 2,
      },
      char_cnn: {
        activation: 'relu',
        embedding: { dim: 16 },
        filters: [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        n_highway: 2,
        n_characters: 262,
        max_characters_per_token: 50,
      },
    },
    softmax: { num_samples: 8192, sparse: true },
    dropout: 0.1,
    // bilm-tf takes gradients of the loss times num_steps.
    gradient_scale: 20,
  },
  data_loader: { batch_size: 128, num_steps: 20, shuffle: true, num_workers: 2 },
  validation_data_loader: { batch_size: 128, num_steps: 20, shuffle: false },
  trainer: {
    num_epochs: 10,
    validation_metric: '-perplexity',
    grad_norm: 10.0,
    optimizer: { type: 'adagrad', lr: 0.2, initial_accumulator_value: 1.0 },
    checkpointer: { save_every_num_batches: 1250 },
  },
}
