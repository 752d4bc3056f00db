(import 'wikigold.libsonnet')((import '../../training_config/ner.jsonnet')())
