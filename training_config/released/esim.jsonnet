(import '../esim.jsonnet')(setup='released')
