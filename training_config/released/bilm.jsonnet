(import '../bilm.jsonnet')(setup='released')
