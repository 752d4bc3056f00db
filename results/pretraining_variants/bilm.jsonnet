// One recipe, four ways: VARIANT is adamw, adamw_bfloat16, adamw_unroll_40 or adagrad (bilm-tf's: 0.2, gradients of 20 times the
// loss, clipped at 10; no dropout, as the others).
//   VARIANT=adagrad allennlp train results/pretraining_variants/bilm.jsonnet -s out/adagrad --include-package elmo_plugin
// Paths as in training_config/pretraining/bilm.jsonnet.
local variant = std.extVar('VARIANT');
local adagrad = variant == 'adagrad';
local unroll = if variant == 'adamw_unroll_40' then 40 else 20;
local num_updates = 3000 * 20 / unroll;
(import '../../training_config/pretraining/bilm_cpu.jsonnet') + {
  model+: {
    options+: { lstm+: { dim: 512, projection_dim: 128 } },
    dtype: if variant == 'adamw_bfloat16' then 'bfloat16' else null,
    [if adagrad then 'gradient_scale']: 20.0,
  },
  data_loader+: { num_steps: unroll, batches_per_epoch: num_updates / 6 },
  trainer+: {
    num_epochs: 6,
    [if adagrad then 'grad_norm']: 10.0,
    [if adagrad then 'optimizer']: { type: 'adagrad', lr: 0.2, initial_accumulator_value: 1.0 },
    [if adagrad then 'learning_rate_scheduler']: null,
    [if !adagrad then 'learning_rate_scheduler']: { type: 'warmup_cosine', warmup_steps: num_updates / 15 },
    callbacks: [],
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
