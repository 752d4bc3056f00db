(import '../../../training_config/table1/coref.jsonnet') + (import 'coref.libsonnet')
