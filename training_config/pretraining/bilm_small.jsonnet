// A biLM with the sizes of the released Small: 2 x 1024/128, 2048 filters, 1 highway. Paths as in bilm.jsonnet.
//   elmo-plugin pretrain training_config/pretraining/bilm_small.jsonnet -s out
//
// The optimizer is not bilm-tf's: AdamW with warm-up and a cosine, no dropout (the text is too large to overfit), clipping at 1.
// results/pretraining_variants compares the curves of both at 512/128.
//
// Expected: unknown, since no perplexity of the released Small is published. Not run here.
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
