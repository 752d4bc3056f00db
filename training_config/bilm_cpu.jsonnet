// pretraining/bilm_cpu.jsonnet, a biLM for two cores, with small sizes on the sample text.
//   elmo-plugin pretrain training_config/bilm_cpu.jsonnet -s out
(import 'pretraining/bilm_cpu.jsonnet') + (import 'sample/bilm.libsonnet') + {
  model+: { dtype:: null },
  // The sample text is one file, and an epoch reads it once.
  data_loader+: { batches_per_epoch:: null, files_at_once:: null },
  trainer+: { learning_rate_scheduler+: { warmup_steps: 20 } },
}
