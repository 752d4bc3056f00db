(import '../bilm_fine_tuning.jsonnet')(setup='released')
