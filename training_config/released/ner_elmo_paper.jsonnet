(import '../ner_elmo_paper.jsonnet')(setup='released')
