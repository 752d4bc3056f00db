(import '../biattentive_classification_network.jsonnet')(setup='released')
