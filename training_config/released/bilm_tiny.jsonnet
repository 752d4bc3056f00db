(import '../bilm_tiny.jsonnet')(setup='released')
