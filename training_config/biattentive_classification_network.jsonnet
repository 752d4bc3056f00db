// table1/biattentive_classification_network.jsonnet, SST-5 without ELMo, on the sample data: offline, smaller.
//   allennlp train training_config/biattentive_classification_network.jsonnet -s out --include-package elmo_plugin
(import 'table1/biattentive_classification_network.jsonnet') + (import 'sample/biattentive_classification_network.libsonnet')
