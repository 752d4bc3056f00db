(import 'wnut17.libsonnet')((import '../../training_config/ner.jsonnet')())
