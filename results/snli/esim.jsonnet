(import '../../training_config/table1/esim.jsonnet') + (import 'snli.libsonnet')
