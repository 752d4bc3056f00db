(import '../../../training_config/table1/biattentive_classification_network.jsonnet') + (import 'biattentive_classification_network.libsonnet')
