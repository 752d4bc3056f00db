// table1/bilm_small.jsonnet, AdamW's recipe, with smaller sizes on the sample text, to see it run.
//   allennlp train training_config/bilm_small.jsonnet -s out --include-package elmo_plugin
(import 'table1/bilm_small.jsonnet') + (import 'sample/bilm.libsonnet') + {
  trainer+: { learning_rate_scheduler+: { warmup_steps: 20 } },
}
