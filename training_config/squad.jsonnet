// table1/squad.jsonnet on the sample data, with its own small word vectors: offline, smaller.
//   allennlp train training_config/squad.jsonnet -s out --include-package elmo_plugin
(import 'table1/squad.jsonnet') + (import 'sample/squad.libsonnet')
