// A biLM of the released Small's sizes: 2 x 1024/128, 2048 filters, 1 highway. Paths as in bilm.jsonnet.
//   allennlp train training_config/table1/bilm_small.jsonnet -s out --include-package elmo_plugin
//
// Not bilm-tf's optimizer: AdamW with warm-up and a cosine, no dropout (a text this size is not learnt by heart), clipping at 1.
// results/pretraining_variants shows the curves of both at 512/128: AdamW is ahead all along.
//
// To expect: not known; AllenNLP gives no perplexity of the released Small. Ours: not run.
(import 'bilm.jsonnet') + {
  model+: {
    options+: { lstm+: { dim: 1024, projection_dim: 128 }, char_cnn+: { n_highway: 1 } },
    // AdamW takes no sparse gradients.
    softmax+: { sparse: false },
    dropout: 0.0,
    gradient_scale: 1.0,
  },
  trainer+: {
    num_epochs: 3,
    grad_norm: 1.0,
    optimizer: {
      type: 'fused_adamw',
      lr: 2e-3,
      weight_decay: 0.01,
      // Not on biases.
      parameter_groups: [[['bias'], { weight_decay: 0.0 }]],
    },
    learning_rate_scheduler: { type: 'warmup_cosine', warmup_steps: 1000 },
  },
}
