(import '../ner.jsonnet')(setup='released')
