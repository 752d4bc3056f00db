// Which sizes, for the same time of one core: the embedded biLM's run, shorter, and what else fits 16 MB of float16. README.md has the table.
//   VARIANT='768/256' elmo-plugin pretrain results/embedded_bilm/sizes.jsonnet -s out
// Paths as in former.jsonnet.
local chosen = { dim: 768, projection_dim: 256, filters: 512, dropout: 0, constant: 0.7, updates: 850 };
// In each as many updates as the first does in the same time: tokens a second of one core of an AMD EPYC with AVX-512 BF16 were 2,330, 2,321,
// 2,149, 2,409, 2,146.
local variants = {
  '768/256': chosen,
  '1024/192': chosen { dim: 1024, projection_dim: 192 },
  '1280/160': chosen { dim: 1280, projection_dim: 160, updates: 785 },
  '768/256, 256 filters': chosen { filters: 256, updates: 880 },
  '768/256, dropout 0.1': chosen { dropout: 0.1, updates: 785 },
  '768/256, cosine': chosen { constant: 0 },
};
local variant = variants[std.extVar('VARIANT')];
local warmup = 100;

(import 'former.jsonnet') + {
  model+: {
    options+: {
      lstm+: { dim: variant.dim, projection_dim: variant.projection_dim },
      char_cnn+: { filters: [[one[0], one[1] * variant.filters / 16] for one in [[1, 1], [2, 1], [3, 2], [4, 4], [5, 4], [6, 4]]] },
    },
    dropout: variant.dropout,
  },
  // More updates of the same tokens: a short run is further on.
  data_loader+: { batch_size: 64, batches_per_epoch: variant.updates },
  trainer+: {
    num_epochs: 1,
    // The share of the run before the rate falls.
    learning_rate_scheduler+: { warmup_steps: warmup, constant_steps: std.max(0, std.round(variant.constant * variant.updates) - warmup) },
    checkpointer: { save_every_num_batches: 500 },
  },
}
