// A biLM for two CPU cores: 2 x 1024/128, 512 filters, 1 highway, products in bfloat16 where that is faster.
// Paths as in bilm.jsonnet, except the vocabulary: words that occur 5 times.
//   elmo-plugin pretrain training_config/pretraining/bilm_cpu.jsonnet -s out
//
// Expected: held-out forward perplexity 66.0 (36,729 words) with the 90 novels of the embedded biLM's card, 18 million tokens.
// The recipe of the embedded biLM is results/embedded_bilm. AdamW as in bilm_small.jsonnet.
(import 'bilm_small.jsonnet') + {
  vocabulary: { min_count: 5 },
  model+: {
    options+: {
      char_cnn+: { filters: [[1, 32], [2, 32], [3, 64], [4, 128], [5, 128], [6, 128]] },
    },
    softmax+: { num_samples: 2048 },
    dtype: 'auto',
  },
  // The text is 90 novels, a file each: all their sentences are shuffled together (under 200 MB). With one file at a time, every
  // batch would read a single novel, and the training loss would swing with it.
  data_loader+: { batch_size: 64, num_workers: 0, batches_per_epoch: 2000, files_at_once: 100 },
  validation_data_loader+: { batch_size: 64 },
  trainer+: {
    num_epochs: 7,
    learning_rate_scheduler+: { warmup_steps: 500 },
    checkpointer: { save_every_num_batches: 500 },
  },
}
