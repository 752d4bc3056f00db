// table1/bilm.jsonnet, bilm-tf's recipe, with small sizes on the sample text, to see it run.
//   allennlp train training_config/bilm.jsonnet -s out --include-package elmo_plugin
(import 'table1/bilm.jsonnet') + (import 'sample/bilm.libsonnet')
