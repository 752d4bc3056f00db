(import '../../training_config/table1/ner.jsonnet') + (import 'wikigold.libsonnet')
