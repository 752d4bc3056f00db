(import '../../training_config/table1/ner.jsonnet') + (import 'wnut17.libsonnet')
