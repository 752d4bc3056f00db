(import 'snli.libsonnet')((import '../../training_config/esim_elmo.jsonnet')())
