(import '../semantic_role_labeler_elmo.jsonnet')(setup='released')
