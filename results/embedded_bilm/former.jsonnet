// The former embedded biLM: 2 x 768/256, 512 filters, on modern English and novels; as bilm_cpu.jsonnet but for what stands here.
//   elmo-plugin pretrain results/embedded_bilm/former.jsonnet -s out
// Paths as in training_config/pretraining/bilm.jsonnet, from what prepare.sh writes: text/train/*.txt, a part of text/heldout, text/vocabulary.txt.
(import '../../training_config/pretraining/bilm_cpu.jsonnet') + {
  vocabulary: { vocabulary_file: std.extVar('BIDIRECTIONAL_LM_VOCAB_PATH') },
  model+: {
    options+: { lstm+: { dim: 768, projection_dim: 256 } },
  },
  // More than there are files: all are shuffled together.
  data_loader+: { batch_size: 128, batches_per_epoch: 1000, files_at_once: 200 },
  trainer+: {
    // 0.41 of a pass over the text. The rate stays constant until 8,000 updates, so that the run could be ended at any time: resumed
    // with other `num_epochs` and `constant_steps`, its rate falls along the cosine at once.
    num_epochs: 11,
    learning_rate_scheduler+: { warmup_steps: 500, constant_steps: 7500 },
    checkpointer: { save_every_num_batches: 100 },
  },
}
