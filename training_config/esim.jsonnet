// table1/esim.jsonnet, SNLI without ELMo, on the sample data: offline, smaller.
//   allennlp train training_config/esim.jsonnet -s out --include-package elmo_plugin
(import 'table1/esim.jsonnet') + (import 'sample/esim.libsonnet')
