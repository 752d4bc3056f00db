(import '../table1/biattentive_classification_network.jsonnet') + (import 'biattentive_classification_network.libsonnet')
