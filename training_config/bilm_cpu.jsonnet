// table1/bilm_cpu.jsonnet, a biLM for two cores, with small sizes on the sample text, to see it run.
//   allennlp train training_config/bilm_cpu.jsonnet -s out --include-package elmo_plugin
(import 'table1/bilm_cpu.jsonnet') + (import 'sample/bilm.libsonnet') + {
  model+: { dtype:: null },
  // The sample text is one file, and an epoch reads it once.
  data_loader+: { batches_per_epoch:: null, files_at_once:: null },
  trainer+: { learning_rate_scheduler+: { warmup_steps: 20 } },
}
