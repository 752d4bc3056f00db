(import '../../../training_config/table1/ner.jsonnet') + (import 'ner.libsonnet')('wikigold')
