(import '../../../training_config/table1/ner_elmo.jsonnet') + (import 'ner.libsonnet')('wikigold') + (import 'ner_elmo.libsonnet')
