(import '../semantic_role_labeler_elmo_5.5B.jsonnet')(setup='released')
