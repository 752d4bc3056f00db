// table1/coref.jsonnet, coreference without ELMo, on the sample data: offline, smaller.
//   allennlp train training_config/coref.jsonnet -s out --include-package elmo_plugin
(import 'table1/coref.jsonnet') + (import 'sample/coref.libsonnet')
