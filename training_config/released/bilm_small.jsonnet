(import '../bilm_small.jsonnet')(setup='released')
