(import '../biattentive_classification_network_elmo_paper.jsonnet')(setup='released')
