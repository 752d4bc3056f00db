(import '../esim_elmo.jsonnet')(setup='released')
