// The biLM of Peters et al. 2018, section 3.4 ("Original"): bilm-tf's bin/train_elmo.py at 7cffee2, value for value.
//   allennlp train training_config/released/bilm.jsonnet -s out --include-package elmo_plugin
//   allennlp evaluate out/model.tar.gz 'heldout/*' --include-package elmo_plugin
// Paths come from BIDIRECTIONAL_LM_TRAIN_PATH (a glob: 1 Billion Word's shards, tokenized sentences, one a line),
// BIDIRECTIONAL_LM_HELDOUT_PATH and BIDIRECTIONAL_LM_VOCAB_PATH (`python -m elmo_plugin vocabulary`, or bilm-tf's file).
// The sample setup is the same recipe with small sizes on the sample text, to see it run.
//
// bilm-tf trains on 3 GPUs, 128 streams each. On several: -o '{"distributed": {"cuda_devices": [0, 1, 2]},
// "model.softmax.sparse": false}'; batch_size is that of one process.
//
// To expect: held-out perplexity (average of both directions) 39.7 in the paper, after two weeks on 3 GTX 1080. Ours: not run.
function(setup='sample') {
  local released = setup == 'released',
  local num_steps = 20,
  dataset_reader: { type: 'bilm_text' },
  vocabulary: {
    type: 'bilm_words',
    [if released then 'vocabulary_file']: std.extVar('BIDIRECTIONAL_LM_VOCAB_PATH'),
  },
  datasets_for_vocab_creation: ['train'],
  train_data_path: if released then std.extVar('BIDIRECTIONAL_LM_TRAIN_PATH') else 'examples/text/train.txt',
  validation_data_path:
    if released then std.extVar('BIDIRECTIONAL_LM_HELDOUT_PATH') else 'examples/text/heldout.txt',
  model: {
    type: 'bilm_language_model',
    options: {
      lstm: {
        use_skip_connections: true,
        projection_dim: if released then 512 else 32,
        dim: if released then 4096 else 64,
        cell_clip: 3,
        proj_clip: 3,
        n_layers: 2,
      },
      char_cnn: {
        activation: 'relu',
        embedding: { dim: 16 },
        filters:
          if released then [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
          else [[1, 8], [2, 8], [3, 16]],
        n_highway: 2,
        n_characters: 262,
        max_characters_per_token: 50,
      },
    },
    softmax: { num_samples: if released then 8192 else 64, sparse: true },
    dropout: 0.1,
    gradient_scale: num_steps,
  },
  data_loader: {
    type: 'token_streams',
    batch_size: if released then 128 else 16,
    num_steps: num_steps,
    shuffle: true,
    num_workers: if released then 2 else 0,
  },
  validation_data_loader: {
    type: 'token_streams',
    batch_size: if released then 128 else 4,
    num_steps: num_steps,
    shuffle: false,
  },
  trainer: {
    num_epochs: if released then 10 else 5,
    validation_metric: '-perplexity',
    grad_norm: 10.0,
    optimizer: { type: 'adagrad', lr: 0.2, initial_accumulator_value: 1.0 },
    checkpointer: { save_every_num_batches: if released then 1250 else 50 },
    callbacks: ['export_bilm'],
  },
}
