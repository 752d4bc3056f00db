(import 'wikigold.libsonnet')((import '../../training_config/ner_elmo.jsonnet')())
