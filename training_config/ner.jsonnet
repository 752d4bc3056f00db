// table1/ner.jsonnet, NER without ELMo, on the sample data: offline, smaller.
//   allennlp train training_config/ner.jsonnet -s out --include-package elmo_plugin
// examples/ner/README.md says what it shows.
(import 'table1/ner.jsonnet') + (import 'sample/ner.libsonnet')
