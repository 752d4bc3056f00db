(import '../../../training_config/table1/esim.jsonnet') + (import 'esim.libsonnet')
