// A biLM in about an hour on two cores, 83 minutes on one: 2 x 1024/128, 512 filters, 1 highway, products in bfloat16
// where that is the faster, on 18 million tokens. Paths as in bilm.jsonnet; with no vocabulary file needed: words that occur 5 times.
//   allennlp train training_config/table1/bilm_cpu.jsonnet -s out --include-package elmo_plugin
//
// To expect: held-out forward perplexity 66.0 (36,729 words), seen with the 90 novels of the embedded biLM's card: it was
// the embedded biLM before the present one, whose recipe is results/embedded_bilm. AdamW as in bilm_small.jsonnet.
(import 'bilm_small.jsonnet') + {
  vocabulary: { type: 'bilm_words', min_count: 5 },
  model+: {
    options+: {
      char_cnn+: { filters: [[1, 32], [2, 32], [3, 64], [4, 128], [5, 128], [6, 128]] },
    },
    softmax+: { num_samples: 2048 },
    dtype: 'auto',
  },
  // The train text is 90 novels, a file each: their sentences are shuffled together (100: all at once, under 200 MB). One file
  // at a time, every batch would read a single novel and the training loss swing with it.
  data_loader+: { batch_size: 64, num_workers: 0, batches_per_epoch: 2000, files_at_once: 100 },
  validation_data_loader+: { batch_size: 64 },
  trainer+: {
    num_epochs: 7,
    learning_rate_scheduler+: { warmup_steps: 500 },
    checkpointer: { save_every_num_batches: 500 },
  },
}
