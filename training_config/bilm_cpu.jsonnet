// A biLM in about an hour on two cores, 83 minutes on one: 2 x 1024/128, 512 filters, 1 highway, products in bfloat16, on 18
// million tokens. Paths as in bilm.jsonnet; with no vocabulary file needed: words that occur 5 times.
//   allennlp train training_config/released/bilm_cpu.jsonnet -s out --include-package elmo_plugin
//
// To expect: held-out forward perplexity 66.0 (36,729 words), seen with the 90 novels of the embedded biLM's card.
// The recipe of the biLM in elmo_plugin/pretrained; its card has the figures. AdamW as in bilm_small.jsonnet.
function(setup='sample')
  local released = setup == 'released';
  (import 'bilm_small.jsonnet')(setup) {
    [if released then 'vocabulary']: { type: 'bilm_words', min_count: 5 },
    model+: {
      [if released then 'options']+: {
        lstm+: { dim: 1024, projection_dim: 128 },
        char_cnn+: { filters: [[1, 32], [2, 32], [3, 64], [4, 128], [5, 128], [6, 128]] },
      },
      softmax+: { [if released then 'num_samples']: 2048 },
      [if released then 'dtype']: 'bfloat16',
    },
    // The train text is 90 novels, a file each: their sentences are shuffled together (100: all at once, under 200 MB). One file
    // at a time, every batch would read a single novel and the training loss swing with it.
    [if released then 'data_loader']+: { batch_size: 64, num_workers: 0, batches_per_epoch: 2000, files_at_once: 100 },
    [if released then 'validation_data_loader']+: { batch_size: 64 },
    trainer+: {
      num_epochs: if released then 7 else 5,
      learning_rate_scheduler+: { warmup_steps: if released then 500 else 20 },
      [if released then 'checkpointer']: { save_every_num_batches: 500 },
    },
  }
