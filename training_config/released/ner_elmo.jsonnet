(import '../ner_elmo.jsonnet')(setup='released')
