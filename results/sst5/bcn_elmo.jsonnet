(import 'sst5.libsonnet')((import '../../training_config/biattentive_classification_network_elmo.jsonnet')())
