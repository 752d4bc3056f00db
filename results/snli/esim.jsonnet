(import 'snli.libsonnet')((import '../../training_config/esim.jsonnet')())
