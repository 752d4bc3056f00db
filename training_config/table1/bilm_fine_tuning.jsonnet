// A trained biLM goes on with the text of a task: Peters et al. 2018, section 3.4 and table 7 (perplexities before and after).
//   allennlp train training_config/table1/bilm_fine_tuning.jsonnet -s out --include-package elmo_plugin
// takes the Original, and the text from BIDIRECTIONAL_LM_TRAIN_PATH and BIDIRECTIONAL_LM_HELDOUT_PATH: tokenized sentences, one a
// line. `out` then holds an options.json and a weights.hdf5 for the task's config.
//
// The softmax of a released biLM is over other words, and mostly not at hand: for the first steps a new one trains alone, then
// all. The paper trains one epoch; its optimizer and the softmax's part are not told.
//
// To expect, after one epoch (average perplexity, appendix): CoNLL-2003 103.2 -> 46.3, SNLI 72.1 -> 16.8, SST 131.5 -> 78.6.
// Ours on these: not run.
(import 'bilm_small.jsonnet') + {
  vocabulary: { type: 'bilm_words' },
  model+: {
    options: import 'original_options.json',
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
