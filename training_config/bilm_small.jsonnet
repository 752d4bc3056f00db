// AdamW's recipe, pretraining/bilm_small.jsonnet, with smaller sizes on the sample text.
//   elmo-plugin pretrain training_config/bilm_small.jsonnet -s out
(import 'pretraining/bilm_small.jsonnet') + (import 'sample/bilm.libsonnet') + {
  trainer+: { learning_rate_scheduler+: { warmup_steps: 20 } },
}
