(import '../../../training_config/table1/ner_elmo.jsonnet') + (import 'ner.libsonnet')('wnut17') + (import 'ner_elmo.libsonnet')
