// The second part of the embedded biLM's training: the weights of the first part, a new softmax, 22,000 updates.
//   allennlp train results/embedded_bilm/second_part.jsonnet -s out --include-package elmo_plugin
// Paths as in bilm.jsonnet. FIRST_PART is the folder of the first part's weights.hdf5.
(import 'bilm.jsonnet') + {
  model+: {
    pretrained_file: std.extVar('FIRST_PART') + '/weights.hdf5',
    // The softmax of the first part was not kept. A new one trains alone before the biLM goes on.
    frozen_steps: 1000,
    dtype: 'bfloat16',
  },
  trainer+: {
    num_epochs: 22,
    optimizer+: { lr: 1.2e-3 },
    learning_rate_scheduler+: { warmup_steps: 200, constant_steps: 17800 },
    checkpointer: { save_every_num_batches: 250 },
  },
}
