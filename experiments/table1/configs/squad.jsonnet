(import '../../../training_config/table1/squad.jsonnet') + (import 'squad.libsonnet')
