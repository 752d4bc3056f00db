// Fine-tuning of a trained biLM on the text of a task: Peters et al. 2018, section 3.4 and table 7 (perplexities before and after).
//   elmo-plugin pretrain training_config/pretraining/bilm_fine_tuning.jsonnet -s out
// starts from the Original, on the text in BIDIRECTIONAL_LM_TRAIN_PATH and BIDIRECTIONAL_LM_HELDOUT_PATH: tokenized sentences, one
// a line. `out` then holds an options.json and a weights.hdf5 for the task's config.
//
// The softmax of a released biLM has other words, and is rarely available: a new one is trained alone for the first steps, then
// everything. frozen_steps must be fewer than the run's steps; 27,000 tokens are 42 steps an epoch. The paper trains one epoch;
// it does not say which optimizer, or what it does with the softmax.
//
// Expected after one epoch (average perplexity, appendix): CoNLL-2003 103.2 -> 46.3, SNLI 72.1 -> 16.8, SST 131.5 -> 78.6. Not run
// here.
(import 'bilm_small.jsonnet') + {
  vocabulary: {},
  model+: {
    options: import '../table1/original_options.json',
    pretrained_file: 'original',
    softmax: {},
    dropout: 0.1,
    frozen_steps: 500,
  },
  data_loader+: { batch_size: 32, num_workers: 0 },
  validation_data_loader+: { batch_size: 4 },
  trainer+: {
    num_epochs: 2,
    optimizer+: { lr: 5e-4 },
    learning_rate_scheduler+: { warmup_steps: 20 },
    checkpointer: {},
  },
}
