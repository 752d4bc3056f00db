// bilm-tf's recipe, pretraining/bilm.jsonnet, with small sizes on the sample text.
//   allennlp train training_config/bilm.jsonnet -s out --include-package elmo_plugin
// or, without AllenNLP, elmo-plugin pretrain training_config/bilm.jsonnet -s out
(import 'pretraining/bilm.jsonnet') + (import 'sample/bilm.libsonnet')
