// The embedded biLM: 2 x 768/256, 512 filters, on modern English and novels. For one GPU.
//   elmo-plugin pretrain results/embedded_bilm/bilm.jsonnet -s out
// Paths as in training_config/pretraining/bilm.jsonnet, from what prepare.sh writes: text/train/*.txt, a part of text/heldout, text/vocabulary.txt.
//
// What is not in bilm_cpu.jsonnet: candidates that both directions share, dropout from the second pass on, states that are reset, more
// streams. README.md says what came of it.
local steps_a_pass = 6624;  // 67,830,401 tokens and sentence ends, 10,240 a step

(import '../../training_config/pretraining/bilm_cpu.jsonnet') + {
  vocabulary: { vocabulary_file: std.extVar('BIDIRECTIONAL_LM_VOCAB_PATH') },
  model+: {
    options+: { lstm+: { dim: 768, projection_dim: 256 } },
    softmax: { num_samples: 4096, count_exponent: 0.8, num_frequent: 4096, bias_from_counts: true },
    dropout: 0.05,
    dropout_free_steps: steps_a_pass,
    reset_probability: 0.02,
    dtype: 'bfloat16',
  },
  // More than there are files: all are shuffled together.
  data_loader+: { batch_size: 512, batches_per_epoch: steps_a_pass, files_at_once: 200, num_workers: 3 },
  validation_data_loader+: { batch_size: 256 },
  trainer+: {
    num_epochs: 13,
    optimizer+: { lr: 3e-3 },
    // A tenth of the run before the rate falls.
    learning_rate_scheduler+: { warmup_steps: 1000, constant_steps: 7600, final_fraction: 1e-3 },
    checkpointer: { save_every_num_seconds: 120 },
  },
}
