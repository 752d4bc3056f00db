(import '../biattentive_classification_network_elmo.jsonnet')(setup='released')
