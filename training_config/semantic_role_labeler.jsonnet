// table1/semantic_role_labeler.jsonnet, SRL without ELMo, on the sample data: offline, smaller.
//   allennlp train training_config/semantic_role_labeler.jsonnet -s out --include-package elmo_plugin
(import 'table1/semantic_role_labeler.jsonnet') + (import 'sample/semantic_role_labeler.libsonnet')
