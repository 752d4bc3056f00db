(import '../esim_elmo_paper.jsonnet')(setup='released')
